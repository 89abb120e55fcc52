"""Training curves: where each episode's steps lie when all are drawn one after another."""

from types import SimpleNamespace

from teleport.report.page.curves import training_curves


def reader_of(folder, steps):
    """A reader of finished trainings t0, t1, ... with a losses.tsv of these steps each."""
    for number, of_training in enumerate(steps):
        lines = ["step\tloss", *(f"{step}\t{step / 10}" for step in of_training)]
        (folder / f"t{number}.tsv").write_text("\n".join(lines) + "\n")

    def artefact(name):
        return SimpleNamespace(manifest={"files": {"losses.tsv": {}}}, path=lambda _: folder / f"{name}.tsv")

    return SimpleNamespace(finished=lambda name: True, artefact=artefact)


def test_segments_of_one_training_go_on_where_it_began(tmp_path):
    """A warm-up of 3 steps, a training of 2, and one of 4 in two segments, of which the second counts from 3."""
    steps = [[1, 2, 3], [1, 2], [1, 2], [3, 4]]
    episodes = [{"train": f"t{number}"} for number in range(len(steps))]
    curves = training_curves(reader_of(tmp_path, steps), [{"seed": 1, "episodes": episodes}])
    by_episode = curves.groupby("episode")
    assert by_episode["step"].agg(list).tolist() == [[1, 2, 3], [4, 5], [6, 7], [8, 9]]
    assert by_episode["loss"].agg(list).tolist()[3] == [0.3, 0.4]


def test_a_dev_curve_has_the_step_before_the_first(tmp_path):
    episodes = [{"train": "t0"}, {"train": "t1"}]
    curves = training_curves(reader_of(tmp_path, [[0, 5, 10], [0, 5]]), [{"seed": 1, "episodes": episodes}])
    assert curves["step"].tolist() == [0, 5, 10, 10, 15]
