"""Reading the store as a proxy would, without leaving a trace."""

from pathlib import Path

from command_fakes import fill, write_config

from foretool.server import offline
from foretool.server.config import loader as configs
from foretool.storage.opening import open_store
from foretool.storage.records import WorkingSet


def test_a_list_worked_out_to_be_looked_at_is_not_kept(tmp_path: Path) -> None:
    path = write_config(tmp_path)
    fill(path).close()
    config = configs.load(path)
    with offline.open_offline(config) as app:
        offline.view(app, config.profiles[""])
    with open_store(config.storage) as store:
        assert store.serving.working_set("/frozen") is None


def test_a_list_that_is_served_is_shown_as_it_is(tmp_path: Path) -> None:
    path = write_config(tmp_path)
    fill(path).close()
    config = configs.load(path)
    with offline.open_offline(config) as app:
        inputs = app.lists.maker.draft(config.profiles[""], "frozen").digest
        now = app.recorder.now()
    with open_store(config.storage) as store:
        store.serving.save_working_set(WorkingSet("/frozen", 7, ("sky__moon",), b"[]", now, inputs))  # type: ignore[arg-type]
    with offline.open_offline(config) as app:
        view = offline.view(app, config.profiles[""])
    assert (view.epoch, view.shown) == (7, {"sky__moon"})
