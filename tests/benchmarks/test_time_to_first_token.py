"""The arithmetic of the headline, and one run of it with a model that is very small."""

from dataclasses import replace

import pytest


def test_entries_of_the_7b_model_are_of_the_sizes_that_were_claimed(script) -> None:
    full = script.SIZES["full"]
    assert [script.entry(full, claim) for claim in script.CLAIMS] == [
        "4,784 rows, 34,291,712 bytes = 34.3 MB",
        "19,136 rows, 137,166,848 bytes = 130.8 MiB",
    ]


@pytest.mark.parametrize("grid", [(13, 22), (12, 23), (14, 23), (13, 24)])
def test_no_other_grid_makes_both_entries(script, monkeypatch, grid: tuple[int, int]) -> None:
    monkeypatch.setitem(script.SIZES, "full", replace(script.SIZES["full"], grid=grid))
    with pytest.raises(AssertionError, match=r"32 frames: .* not 34\.3"):
        script.entry(script.SIZES["full"], script.CLAIMS[0])


def test_the_grid_is_the_only_one_of_its_shape(script) -> None:
    """Of all grids of pairs of frames, under either unit of either claim."""
    row = script.SIZES["full"].entry_bytes(2) // script.SIZES["full"].rows(2)
    fitting = [
        {
            rows
            for rows in range(1, 1000)
            for unit in script.UNITS.values()
            if f"{claim.frames // 2 * rows * row / unit:.1f}" == claim.entry
        }
        for claim in script.CLAIMS
    ]
    assert fitting[0] & fitting[1] == {13 * 23}


def test_entries_of_other_sizes_claim_nothing(script) -> None:
    small = script.SIZES["small"]
    assert script.entry(small, script.CLAIMS[0]) == "720 rows, 1,474,560 bytes"


def test_multiply_adds_of_the_7b_model_are_those_of_its_parameters(script) -> None:
    """Beside attention, 6.53 thousand million of its decoder see each token, and 0.63 of its tower
    each patch."""
    full = script.SIZES["full"]
    frames = 32
    tokens = full.rows(frames) + 2 * script.TEXT
    attention = full.layers * full.hidden_size * tokens
    assert full.decoder_multiply_adds(frames) / tokens - attention == 6_525_288_448
    per_patch = full.encoder_multiply_adds(frames) / full.rows(frames) / script.PATCHES_OF_A_ROW
    assert per_patch == pytest.approx(0.65e9, rel=0.02)


def test_small_has_about_the_encoder_and_the_decoder_of_the_full_size(script) -> None:
    full, small = script.SIZES["full"], script.SIZES["small"]
    for claim in script.CLAIMS:
        assert small.faster(claim.frames) == pytest.approx(full.faster(claim.frames), abs=0.05)


@pytest.mark.full
def test_a_round_times_cold_and_warm(script, monkeypatch, capsys) -> None:
    tiny = replace(
        script.SIZES["small"],
        hidden_size=128,
        intermediate_size=64,
        layers=1,
        heads=1,
        vision_hidden_size=16,
        vision_intermediate_size=16,
        vision_depth=2,
        vision_heads=1,
        full_attention=(1,),
    )
    monkeypatch.setitem(script.SIZES, "small", tiny)
    monkeypatch.setattr(script, "CLAIMS", (script.CLAIMS[0]._replace(frames=4),))
    monkeypatch.setattr("sys.argv", ["time_to_first_token.py", "--rounds", "1"])
    script.main()
    *_, line = capsys.readouterr().out.splitlines()
    _, frames, entry, cold, warm, saved, ratio, *_ = (cell.strip() for cell in line.split("|"))
    assert (frames, entry) == ("4", "90 rows, 46,080 bytes")
    assert all(float(cell.split()[0]) > 0 for cell in (cold, warm, ratio))
    assert saved


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--synchronisations"], "expected --device cuda"),
        pytest.param(["--device", "cuda"], "sees no GPU", marks=pytest.mark.full),
    ],
)
def test_what_needs_a_gpu_says_so_where_there_is_none(
    script, monkeypatch, capfd, words: list[str], said: str
) -> None:
    monkeypatch.setattr("sys.argv", ["time_to_first_token.py", *words])
    with pytest.raises(SystemExit) as ended:
        script.main()
    assert ended.value.code == 2
    problem = capfd.readouterr().err
    assert said in problem
    assert problem.count("\n") == 1
