"""`tilec compile`."""

from __future__ import annotations

import json
import os

import pytest

from tests.jobs.front_half import CU


def test_the_output_goes_beside_the_caller(tilec, folder) -> None:
    status, out, err = tilec("compile", "a.tile")
    assert (status, out, err) == (0, "", "")
    assert (folder / "a.cu").read_text() == f"// tilec compile a.tile --arch sm_80\n{CU}"


def test_the_banner_names_no_folder_and_sorts_options(tilec, folder) -> None:
    os.mkdir(folder / "sub")
    status, _, _ = tilec(
        "compile",
        str(folder / "a.tile"),
        "scaled",
        "-DBN=32",
        "--arch",
        "sm_90",
        "--arch",
        "sm_80",
        "-o",
        "sub/o",
    )
    assert status == 0
    first = (folder / "sub" / "o").read_text().splitlines()[0]
    assert first == "// tilec compile a.tile scaled -D BN=32 --arch sm_80 --arch sm_90"


def test_standard_output(tilec, folder) -> None:
    assert tilec("compile", "a.tile", "-o", "-") == (
        0,
        f"// tilec compile a.tile --arch sm_80\n{CU}",
        "",
    )
    assert not (folder / "a.cu").exists()


@pytest.mark.parametrize(
    ("emit", "words"),
    [
        ("ast", '      name: "scaled"\n'),
        ("tile-ir", "kernel scaled {BN=64}"),
        ("kernel-ir", "kernel copied for sm_80"),
        ("manifest", '"source": "a.tile"'),
    ],
)
def test_forms_that_are_text_are_printed(tilec, emit, words) -> None:
    status, out, err = tilec("compile", "a.tile", "--emit", emit)
    assert (status, err) == (0, "")
    assert words in out


def test_manifest_is_json(tilec) -> None:
    _, out, _ = tilec("compile", "a.tile", "--emit", "manifest")
    assert [k["kernel"] for k in json.loads(out)["kernels"]] == ["scaled", "copied"]


def test_header_depfile_and_temporaries(tilec, folder) -> None:
    status, out, err = tilec(
        "compile",
        "a.tile",
        "-o",
        "o.cu",
        "--header",
        "o.h",
        "-MD",
        "--save-temps",
        "t/u",
        "--print-after",
        "fold",
    )
    assert (status, out) == (0, "")
    assert err == "// after fold\n"
    assert (folder / "o.h").read_text() == "#pragma once\n"
    assert (folder / "o.d").read_text() == "o.cu: \\\n  a.tile \\\n  parts.tile\n\nparts.tile:\n"
    kept = sorted(os.listdir(folder / "t" / "u"))
    assert kept == ["a.00-fold", "a.ast", "a.cu", "a.h", "a.json", "a.kernel-ir", "a.tile-ir"]


def test_depfile_path_and_target(tilec, folder) -> None:
    assert tilec("compile", "a.tile", "-o", "-", "-MF", "deps", "-MT", "x y")[0] == 0
    assert (folder / "deps").read_text().startswith("x y: \\\n")  # two targets
    assert tilec("compile", "a.tile", "-o", "x y.cu", "-MF", "deps")[0] == 0
    assert (folder / "deps").read_text().startswith("x\\ y.cu: \\\n")
    status, _, err = tilec("compile", "a.tile", "-o", "-", "-MD")
    assert (status, "E0709" in err) == (2, True)


def test_repeating_gives_the_same_bytes_and_writes_again(tilec, folder) -> None:
    tilec("compile", "a.tile")
    first = (folder / "a.cu").read_bytes()
    os.utime(folder / "a.cu", (0, 0))
    tilec("compile", "a.tile")
    assert (folder / "a.cu").read_bytes() == first
    assert (folder / "a.cu").stat().st_mtime > 0


def test_if_changed_leaves_files_that_hold_their_bytes(tilec, folder) -> None:
    command = ("compile", "a.tile", "--header", "a.h", "-MD", "--if-changed")
    assert tilec(*command) == (0, "", "")
    outputs = ("a.cu", "a.h", "a.d")
    first = {name: (folder / name).read_bytes() for name in outputs}
    for name in outputs:
        os.utime(folder / name, (1, 1))
    (folder / "a.h").write_text("#pragma twice\n")  # as long as what it was
    assert tilec(*command) == (0, "", "")
    assert {name: (folder / name).read_bytes() for name in outputs} == first
    times = {name: (folder / name).stat().st_mtime for name in outputs}
    assert times["a.cu"] == times["a.d"] == 1 and times["a.h"] > 1
    assert tilec(*command, "--arch", "sm_90") == (0, "", "")
    assert (folder / "a.cu").stat().st_mtime > 1


def test_if_changed_and_standard_output(tilec) -> None:
    first = tilec("compile", "a.tile", "-o", "-", "--if-changed")
    assert first[1] and tilec("compile", "a.tile", "-o", "-", "--if-changed") == first


def test_check_only_writes_nothing(tilec, folder) -> None:
    before = sorted(os.listdir(folder))
    assert tilec("compile", "a.tile", "--check-only") == (0, "", "")
    assert sorted(os.listdir(folder)) == before
    status, _, err = tilec("compile", "a.tile", "--check-only", "-o", "x")
    assert (status, "E0709" in err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "status", "code"),
    [
        (("frobnicate",), 2, "E0701"),
        (("compile",), 2, "E0701"),
        (("compile", "a.tile", "--frobnicate"), 2, "E0701"),
        (("compile", "a.tile", "--emit", "sass"), 2, "E0701"),
        (("compile", "missing.tile"), 2, "E0703"),
        (("compile", "."), 2, "E0703"),
        (("compile", "a.tile", "-o", "gone/a.cu"), 2, "E0704"),
        (("compile", "a.tile", "-o", "parts.tile/a.cu"), 2, "E0704"),
        (("compile", "a.tile", "-o", "."), 2, "E0704"),
        (("compile", "a.tile", "--header", "gone/a.h"), 2, "E0704"),
        (("compile", "a.tile", "-o", "a.tile"), 2, "E0704"),
        (("compile", "a.tile", "-o", "x", "--header", "./parts.tile"), 2, "E0704"),
        (("compile", "a.tile", "-o", "x", "--header", "./x"), 2, "E0709"),
        (("compile", "a.tile", "-D", "BN"), 2, "E0705"),
        (("compile", "a.tile", "-D", "BN=1", "-D", "BN=2"), 2, "E0705"),
        (("compile", "a.tile", "nothing"), 2, "E0706"),
        (("compile", "a.tile", "--arch", "sm_42"), 2, "E0707"),
        (("compile", "a.tile", "--print-after", "nothing"), 2, "E0719"),
        (("compile", "a.tile", "--emit", "ptx", "--arch", "sm_80", "--arch", "sm_90"), 2, "E0708"),
    ],
)
def test_command_lines_that_are_wrong(tilec, folder, arguments, status, code) -> None:
    before = sorted(os.listdir(folder))
    got, out, err = tilec(*arguments)
    assert (got, out) == (status, "")
    assert err.startswith(f"error[{code}]: ")
    assert "Traceback" not in err
    assert sorted(os.listdir(folder)) == before


@pytest.mark.parametrize(
    ("arguments", "helped"),
    [
        (("compil", "a.tile"), "did you mean `tilec compile`?"),
        (("frobnicate",), "`tilec --help` lists"),
        (("compile", "a.tile", "--arch", "sm90"), "did you mean `sm_90`?"),
        (("compile", "a.tile", "--arch", "compute_90a"), "did you mean `sm_90a`?"),
        (("compile", "a.tile", "--arch", "sm_42"), "known are sm_75"),
        (("compile", "a.tile", "--bench"), "one of `tilec run`"),
        (("run", "a.tile", "--bnch"), "did you mean `--bench`?"),
        (("run", "a.tile", "--device", "reference", "-s", "N=1e6"), "`-s N=10**6`"),
    ],
)
def test_what_a_command_line_should_say_instead(tilec, folder, arguments, helped) -> None:
    assert helped in tilec(*arguments)[2].split("help: ")[1]


def test_numbers_that_are_none(tilec, folder) -> None:
    assert "`abc` is no number" in tilec("run", "a.tile", "--rtol", "abc")[2]
    assert "`x` is no whole number" in tilec("run", "a.tile", "--seed", "x")[2]


def test_errors_of_the_program_leave_the_output_alone(tilec, folder) -> None:
    (folder / "bad.tile").write_text(
        "kernel f(x: f32[N]) -> y: f32[N]:\n    for i in parallel(N by 4):\n        y[i] = z[i]\n"
    )
    (folder / "bad.cu").write_text("before")
    status, _, err = tilec("compile", "bad.tile")
    assert status == 1
    assert "--> bad.tile:3:16" in err
    assert (folder / "bad.cu").read_text() == "before"


def test_nul_bytes_are_a_message(tilec, folder) -> None:
    (folder / "nul.tile").write_bytes(b"kernel f\0(x: f32[N]) -> y: f32[N]:\n    y[:] = x[:]\n")
    status, _, err = tilec("compile", "nul.tile")
    assert status == 1
    assert err.startswith("error[E01")


@pytest.mark.parametrize(
    "form", [("--json-diagnostics",), ("--diagnostics", "json"), ("--diagnostics=json",)]
)
def test_messages_as_json(tilec, form) -> None:
    status, _, err = tilec("compile", "missing.tile", *form)
    assert status == 2
    (message,) = json.loads(err)
    assert (message["code"], message["level"]) == ("E0703", "error")
    _, _, err = tilec("compile", *form, "--frobnicate")
    assert json.loads(err)[0]["code"] == "E0701"


WARNING = "kernel f(x: f32[N]) -> (y: f32[N], z: f32[N]):\n    for i in parallel(N by 4):\n        y[i] = x[i]\n"


def test_warnings(tilec, folder) -> None:
    (folder / "w.tile").write_text(WARNING)
    status, _, err = tilec("compile", "w.tile")
    assert status == 0
    assert err.startswith("warning[W0201]")
    assert tilec("compile", "w.tile", "--no-warnings") == (0, "", "")
    (folder / "w.cu").unlink()
    status, _, err = tilec("compile", "w.tile", "--warnings-as-errors")
    assert status == 1
    assert "error[E0650]: 1 warning counts as an error" in err
    assert not (folder / "w.cu").exists()


def test_an_internal_fault_is_one_paragraph(tilec, folder, monkeypatch) -> None:
    monkeypatch.setenv("TILEC_CACHE_DIR", str(folder / "cache"))

    def broken(*arguments: object, **options: object) -> None:
        raise RecursionError("maximum recursion depth exceeded")

    monkeypatch.setattr("tilec.compiler.compile_file", broken, raising=False)
    status, out, err = tilec("compile", "a.tile")
    assert (status, out) == (70, "")
    assert err.startswith(
        "error[E7001]: tilec failed while working in `tilec.jobs.tuned` on `a.tile`: Recursion"
    )
    assert "Traceback" not in err
    (bundle,) = (folder / "cache" / "faults").iterdir()
    assert {"a.tile", "command.txt", "traceback.txt", "about.json"} <= set(os.listdir(bundle))
    assert (bundle / "command.txt").read_text() == "tilec compile a.tile\n"


def test_interrupts_and_closed_pipes(tilec, monkeypatch) -> None:
    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tilec.compiler.compile_file", interrupted, raising=False)
    assert tilec("compile", "a.tile")[0] == 130
