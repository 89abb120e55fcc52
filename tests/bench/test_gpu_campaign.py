"""The campaign on a borrowed GPU: every step has its line, also one that fails or takes too long."""

import importlib
import json

import pytest
from bench_world import bench_on_path  # noqa: F401


@pytest.fixture
def campaign():
    return importlib.import_module("gpu_campaign")


def lines(folder):
    return [json.loads(line) for line in (folder / "campaign.jsonl").read_text().splitlines()]


def test_a_step_that_fails_or_takes_too_long_does_not_stop_the_rest(campaign, tmp_path, capsys):
    write = f"open({str(tmp_path / 'good.json')!r}, 'w').write('{{\"rate\": 2}}')"
    started = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    chosen = {"bad": ["-c", "print('why'); int('x')"], "long": ["-c", started], "good": ["-c", write]}
    assert campaign.campaign(chosen, tmp_path, 0.02) == ["bad", "long"]
    bad, long, good = lines(tmp_path)
    assert bad["status"] == "failed with status 1" and "why" in bad["tail"] and "ValueError" in bad["tail"]
    assert long["status"] == "ended after 0.02 minutes" and long["seconds"] < 10
    assert good["status"] == "done" and good["figures"] == {"rate": 2} and "tail" not in good
    assert all("cores" in line["hardware"] and "torch" in line["versions"] for line in (bad, long, good))
    text = capsys.readouterr().out
    if "gpu" not in good["hardware"]:
        assert text.startswith("no GPU: figures are of the CPU") and good["note"] == campaign.NO_GPU


def test_later_lines_are_appended_and_figures_of_an_earlier_run_are_not_taken(campaign, tmp_path):
    (tmp_path / "bad.json").write_text('{"old": 1}')
    for _ in range(2):
        campaign.campaign({"bad": ["-c", "int('x')"]}, tmp_path, 1)
    assert len(lines(tmp_path)) == 2 and all("figures" not in line for line in lines(tmp_path))


def test_the_order_and_the_sizes(campaign, tmp_path, monkeypatch):
    monkeypatch.setattr("teleport.running.memory.free_bytes", lambda: 10**12)
    monkeypatch.setattr(campaign.shutil, "disk_usage", lambda folder: type("usage", (), {"free": 10**12}))
    named = campaign.steps(tmp_path, small=False)
    assert list(named)[:6] == ["tests", "train", "search", "calibrate", "encode", "live"]
    assert {"--passages", "8841823", "--queries", "65536"} < set(named["search"])
    assert any("test_training_gpu" in argument for argument in named["tests"])
    monkeypatch.setattr("teleport.running.memory.free_bytes", lambda: 4 * 768 * 1000)
    assert "600" in campaign.steps(tmp_path, small=False)["search"]


def test_what_needs_a_package_that_is_not_there_is_left_out_and_is_no_failure(campaign, tmp_path, monkeypatch):
    monkeypatch.setattr(campaign, "find_spec", lambda name: None)
    assert campaign.lacking("live-pq", True) and not campaign.lacking("search", True)
    monkeypatch.setattr(campaign, "lacking", lambda name, on_gpu: "left out: why" if name == "search" else None)
    assert campaign.campaign({"search": ["-c", "int('x')"], "tests": ["-c", "print('2 passed')"]}, tmp_path, 1) == []
    assert [line["status"] for line in lines(tmp_path)] == ["left out: why", "done"]
    assert lines(tmp_path)[1]["figures"] == {"passed": 2}


def test_the_hardware_line_is_that_of_the_last_calibration(campaign, tmp_path, capsys):
    with pytest.raises(SystemExit, match="has no finished calibration: .* --only calibrate"):
        campaign.main(["--folder", str(tmp_path), "--hardware", "borrowed"])
    written = [{"step": "calibrate", "figures": {"source": f"run {n}", "disk": 1e9}} for n in (1, 2)]
    written.append({"step": "calibrate", "status": "failed with status 1"})
    (tmp_path / "campaign.jsonl").write_text("".join(json.dumps(line) + "\n" for line in written))
    assert campaign.main(["--folder", str(tmp_path), "--hardware", "borrowed"]) == 0
    assert campaign.yaml.safe_load(capsys.readouterr().out) == {"borrowed": {"source": "run 2", "disk": 1e9}}


def test_the_table_of_the_page_is_made_from_the_lines(campaign, tmp_path, monkeypatch):
    """Of each machine; of a step that was done later the later figures."""
    page = importlib.import_module("campaign_page")
    own = {"hardware": {"gpu": "H1", "processor": "P"}, "versions": {"torch": "2.13.0"}, "commit": "abcdef0123"}
    steps = {"name": "train", "unit": "passages", "amount": 256, "medians": {"bf16": 0.032}}
    steps["figures"] = {"waits, bf16": "none", "peak bytes, bf16": 9_500_000_000, "operators": {"mm": 2.0}}
    lines = [
        {"step": "tests", "status": "failed with status 1", "figures": {"passed": 1}},
        {"step": "train", "status": "done", "figures": steps},
        {"step": "calibrate", "status": "done", "figures": {"disk": 1e9}},
        {"step": "tests", "status": "done", "figures": {"passed": 40, "skipped": 2}},
        {"step": "live", "status": "ended after 6 minutes"},
    ]
    (tmp_path / "campaign.jsonl").write_text("".join(json.dumps(line | own) + "\n" for line in lines))
    written = tmp_path / "gpu.md"
    monkeypatch.setattr(page, "PAGE", written)
    written.write_text(f"before\n{page.BEGIN}\nold\n{page.END}\nafter\n")
    for _ in range(2):
        assert campaign.main(["--folder", str(tmp_path), "--page"]) == 0
        assert written.read_text().splitlines() == [
            "before",
            page.BEGIN,
            "H1, torch 2.13.0, commit abcdef0:",
            "",
            "| step | figure | |",
            "|---|---|--:|",
            "| tests | passed | 40 |",
            "| tests | skipped | 2 |",
            "| train | passages/s, bf16 | 8,000 |",
            "| train | waits, bf16 | none |",
            "| train | peak bytes, bf16 | 9.50 GB |",
            "| calibrate |  | an entry of config/hardware.yaml (`--hardware`) |",
            "| live |  | ended after 6 minutes |",
            "",
            page.END,
            "after",
        ]
    (tmp_path / "campaign.jsonl").write_text(json.dumps(lines[4] | own | {"commit": None}) + "\n")
    assert campaign.main(["--folder", str(tmp_path), "--page"]) == 0  # of a copy without git
    assert "commit unknown:" in written.read_text()
    (tmp_path / "campaign.jsonl").unlink()
    with pytest.raises(SystemExit, match="has no line of a campaign"):
        campaign.main(["--folder", str(tmp_path), "--page"])


def test_the_page_has_the_marks():
    page = importlib.import_module("campaign_page")
    assert page.PAGE.read_text().count(page.BEGIN) == page.PAGE.read_text().count(page.END) == 1


def test_the_tests_come_first_and_are_those_of_stages_processes_and_kernels(campaign, tmp_path):
    named = campaign.steps(tmp_path, small=True)
    assert next(iter(named)) == "tests"
    for name in ("test_stages_on_cuda", "test_training_on_cuda", "test_training_gpu", "test_packed"):
        assert any(argument.endswith(f"{name}.py") for argument in named["tests"])


def test_a_name_that_is_no_step_is_refused(campaign, tmp_path, capsys):
    with pytest.raises(SystemExit):
        campaign.main(["--folder", str(tmp_path), "--only", "serch"])
    assert "no such step: serch; there are tests, train" in capsys.readouterr().err


@pytest.mark.slow
def test_the_campaign_runs_at_a_small_size(campaign, tmp_path):
    names = ["tests", "train", "search", "encode", "live-pq"]
    assert campaign.main(["--small", "--folder", str(tmp_path), "--only", *names]) == 0
    found = {line["step"]: line["figures"] for line in lines(tmp_path)}
    assert list(found) == names
    assert "milliseconds a step, 2 back to back, stage, fp32" in found["train"]["figures"]
