"""What the user writes of a tool counts in training: its name, and its description as the text of its document."""

import json

from learning_setting import MOON, RAIN, Setting

from foretool.learning.run import Learner
from foretool.retrieval.document import document, embedded_text
from foretool.server import offline
from foretool.server.config import loader
from foretool.storage.records import ToolId


def test_a_tool_trains_under_the_users_name_and_words(setting: Setting) -> None:
    setting.store.catalog.save_exposed_names({RAIN: ("sky", "rain"), MOON: ("sky", "moon")})
    setting.demonstrate(RAIN, MOON, times=12)
    written = json.loads(setting.config.path.read_text())
    written["mcpServers"]["sky"]["tools"] = {"rain": {"name": "wet", "description": "Tells whether to take a coat."}}
    setting.config.path.write_text(json.dumps(written))
    changed = loader.load(setting.config.path)
    with offline.open_offline(changed) as app:
        learner = Learner(changed, app.catalog, setting.store, lambda *_: None, 1e9)
        material = learner._material_before(len(learner.timeline))
    wet = next(tool for tool in material.tools if tool.name == "rain")
    assert wet.id == "sky__wet"
    assert "Tells whether to take a coat" in embedded_text(document(wet, ""))
    assert [each.calls for each in material.episodes] == [(ToolId("sky__wet"), MOON)] * 12
