"""A target's models over time: looked up when they are new or served otherwise, within bounds, absent with the reason."""

import gc
import json
import logging
import tracemalloc
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from llm_serving_exporter.cli import main
from llm_serving_exporter.cost.meter import MOST_NAMES
from llm_serving_exporter.daemon.store import Store
from llm_serving_exporter.engines import plan
from llm_serving_exporter.engines.mapping import Runtime
from llm_serving_exporter.engines.plan import MAX_ENGINES
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.engines.rows import MAX_LABEL_VALUES
from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.expose.collector import Setup, ViewCollector
from llm_serving_exporter.expose.encode import encode
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.shape import ModelFacts
from llm_serving_exporter.model.snapshot import Absence, ServerFacts
from llm_serving_exporter.model.target import HttpSettings, ModelSettings, Role, ServedModel, Target
from llm_serving_exporter.settings.config import Config
from llm_serving_exporter.targets.host import TargetHost
from llm_serving_exporter.targets.pipeline import TargetPipeline
from llm_serving_exporter.targets.server import MOST_KEPT, ModelBook, served_model
from llm_serving_simulator.replay import demo_model_config
from tests.support.builders.golden_cases import MADE
from tests.support.builders.pipelines import make_pipeline
from tests.support.builders.recordings import page
from tests.support.models.modelfolders import FP8, LLAMA, cached, folder
from tests.support.quick import keep_quick
from tests.support.rows import check_rows
from tests.support.servers import faultbehaviours as fault
from tests.support.servers.faultserver import FaultServer
from tests.support.servers.replica import Replica

# --- A target's models over time: looked up when they are new or served otherwise, absent with the reason, seen by `once`


EARLY, LATE = page("vllm-0.32", 50), page("vllm-0.32", 60)
NAME = "tiny-llama"


def models(root: str | None) -> Any:
    said = {"data": [{"id": NAME, "root": root, "max_model_len": 2048}]}
    return fault.page(json.dumps(said).encode(), "application/json")


@dataclass
class Rig:
    server: FaultServer
    pipeline: TargetPipeline
    now: list[float]

    def look(self, seconds: float = 10.0) -> TargetReading:
        """A tick, the side endpoints, and the tick that uses what they said."""
        self.pipeline.tick()
        self.pipeline.refresh_facts()
        self.now[0] += seconds
        return self.pipeline.tick()


@contextmanager
def rig(settings: ModelSettings, root: str | None = None, **target: Any) -> Iterator[Rig]:
    now = [0.0]
    routes = {"/metrics": fault.page(EARLY), "/version": fault.page(b'{"version":"0.32.0"}', "application/json")}
    with FaultServer({**routes, "/v1/models": models(root), "/server_info": fault.status(404)}) as server:
        one = Target(
            "a", server.url, model=settings, interval_seconds=1.0, http=HttpSettings(timeout_seconds=0.7), **target
        )
        pipeline = make_pipeline(one, now, models=ModelBook(None).find)
        with closing(pipeline):
            yield Rig(server, pipeline, now)


def known(reading: TargetReading) -> ModelFacts:
    (found,) = reading.server.models.values()
    assert isinstance(found, ModelFacts), found
    return found


def unknown(reading: TargetReading) -> FactsError:
    (found,) = reading.server.models.values()
    assert isinstance(found, FactsError), found
    return found


def reasons(reading: TargetReading) -> set[str]:
    return {why.value for why in reading.page.derived.signals.values()}


def test_a_configured_model_is_known_at_the_tick_after_the_first() -> None:
    with rig(ModelSettings(config=demo_model_config()), gpu_model="L40S", gpu_count=1) as it:
        assert it.pipeline.tick().server.models == {}
        it.pipeline.refresh_facts()
        it.server.behave("/metrics", fault.page(LATE))
        it.now[0] += 3.0
        reading = it.pipeline.tick()
    facts = known(reading)
    # the model of the recordings: 38 million parameters
    assert 38e6 < facts.geometry.parameters_total < 38.5e6
    assert facts.name == NAME
    assert not {"model_unknown", "architecture_unknown"} & reasons(reading)
    assert reading.page.derived.engines[0].roofline.decode_ceiling is not None


def test_a_model_is_known_before_its_first_request_and_after_a_restart() -> None:
    """TensorRT-LLM's first page names the model, and nothing on it shows an engine yet."""
    path = "/prometheus/metrics"
    with rig(ModelSettings(config=demo_model_config()), gpu_model="L40S", gpu_count=1) as it:
        for number in (0, 46, 0):
            it.server.behave(path, fault.page(page("trtllm-050f80de", number)))
            reading = it.look()
            assert reading.server.runtime == "trtllm"
            assert known(reading).name == NAME
            assert "model_unknown" not in reasons(reading)
            assert reading.page.derived.signals["phase_reference_seconds_per_token"] == ""
    assert reading.server.restarts_total == 1


def test_a_page_that_will_not_show_an_engine_looks_up_no_model() -> None:
    """TensorRT-LLM 1.1 at work: five families, none of them an engine's."""
    with rig(ModelSettings(config=demo_model_config())) as it:
        it.server.behave("/prometheus/metrics", fault.page((MADE / "trtllm-1.1.prom").read_bytes()))
        reading = it.look()
        assert (reading.server.runtime, reading.server.models) == ("trtllm", {})


def test_a_model_that_nothing_knows_is_the_reason_of_its_signals(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), rig(ModelSettings(), gpu_model="L40S", gpu_count=1) as it:
        reading = it.look()
        it.look()
    assert unknown(reading).reason == "model_unknown"
    assert "model_unknown" in reasons(reading)
    said = [record.getMessage() for record in caplog.records if "no roofline" in record.getMessage()]
    assert len(said) == 1, "said once, not at each tick"
    assert said[0].startswith(
        "target=a: no roofline for model tiny-llama: model 'tiny-llama' is not in the built-in catalogue"
    )
    assert "targets[].model.config" in said[0]


def test_an_architecture_without_a_formula_is_another_reason(tmp_path: Path) -> None:
    place = folder(tmp_path, {"model_type": "hyena"})
    with rig(ModelSettings(config=str(place)), gpu_model="L40S", gpu_count=1) as it:
        reading = it.look()
    assert unknown(reading).reason == "architecture_unknown"
    assert "architecture_unknown" in reasons(reading)
    assert "model_unknown" not in reasons(reading)


def test_the_folder_that_a_server_loaded_is_read(tmp_path: Path) -> None:
    with rig(ModelSettings(), root=str(folder(tmp_path))) as it:
        facts = known(it.look())
    assert facts.geometry.layers == 8
    assert facts.origin.startswith(str(tmp_path / "config.json"))


def test_a_server_that_loads_another_model_is_looked_up_anew(tmp_path: Path) -> None:
    first, second = folder(tmp_path / "one"), folder(tmp_path / "two", {**LLAMA, "num_hidden_layers": 3})
    with rig(ModelSettings(), root=str(first)) as it:
        assert known(it.look()).geometry.layers == 8
        it.server.behave("/v1/models", models(str(second)))
        # an outage makes the side endpoints due; the name on the page stays
        it.server.behave("/metrics", fault.status(503))
        it.look()
        it.server.behave("/metrics", fault.page(EARLY))
        it.look()
        assert known(it.look()).geometry.layers == 3
        it.server.behave("/v1/models", models("/nowhere"))
        it.server.behave("/metrics", fault.status(503))
        it.look()
        it.server.behave("/metrics", fault.page(LATE))
        it.look()
        assert unknown(it.look()).reason == "model_unknown"


def test_files_that_changed_count_after_a_reload_only(tmp_path: Path) -> None:
    settings = ModelSettings(config=str(folder(tmp_path)))
    now = [0.0]
    books = [ModelBook(None), ModelBook(None)]
    with FaultServer({"/metrics": fault.page(EARLY)}) as server:
        target = Target("a", server.url, model=settings, interval_seconds=1.0, http=HttpSettings(timeout_seconds=0.7))
        find = lambda asked, served: books[0].find(asked, served)  # noqa: E731  # as the host does, which takes a new book
        with closing(make_pipeline(target, now, models=find)) as pipeline:
            it = Rig(server, pipeline, now)
            assert known(it.look()).geometry.layers == 8
            folder(tmp_path, {**LLAMA, "num_hidden_layers": 3})
            assert known(it.look()).geometry.layers == 8
            books.pop(0)
            assert known(it.look()).geometry.layers == 8
            pipeline.look_again()
            assert known(it.look()).geometry.layers == 3


def test_notes_about_a_model_are_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from tests.support.models.modelfolders import index

    place = folder(tmp_path, index=index(10**9))
    with caplog.at_level(logging.WARNING), rig(ModelSettings(config=str(place))) as it:
        it.look()
        it.look()
    said = [record.getMessage() for record in caplog.records if "the checkpoint holds" in record.getMessage()]
    assert len(said) == 1
    assert said[0].startswith("target=a: model tiny-llama: the checkpoint holds 1.00 GB")


def test_a_front_end_looks_up_no_models() -> None:
    """Configured as one, or by its page: what the names are of runs elsewhere."""
    configured = ModelSettings(config=demo_model_config())
    with rig(configured, role=Role.FRONTEND) as it:
        reading = it.look()
        assert (reading.server.model_name, reading.server.models) == (NAME, {})
    with rig(configured) as it:
        it.server.behave("/metrics", fault.page(page("dynamo-1.6.1-frontend", 60)))
        reading = it.look()
        assert (reading.role, reading.server.model_name, reading.server.models) == (Role.FRONTEND, "tiny", {})


def test_without_a_book_no_model_is_known() -> None:
    with FaultServer({"/metrics": fault.page(EARLY)}) as server:
        target = Target("a", server.url, http=HttpSettings(timeout_seconds=0.7))
        with closing(make_pipeline(target)) as pipeline:
            pipeline.tick()
            pipeline.refresh_facts()
            assert pipeline.tick().server.models == {}


def test_a_lookup_that_breaks_costs_no_page() -> None:
    """The book never raises; were it to, ticks go on."""
    with rig(ModelSettings(config="\0")) as it:
        reading = it.look()
    assert reading.page.up is True
    assert unknown(reading).reason == "model_unknown"


def test_what_the_server_says_of_a_model() -> None:
    facts = ServerFacts(
        model_roots={"m": "acme/m"}, dtype="bfloat16", quantization="fp8", kv_cache_dtype="auto", state_dtype="float32"
    )
    assert served_model("m", facts, None) == ServedModel("m", "acme/m", "bfloat16", "fp8", "auto", "float32")
    # the page's own label is of this engine, the endpoint's of the server
    assert served_model("m", facts, "fp8_e4m3").kv_cache_dtype == "fp8_e4m3"
    assert served_model("other", facts, None).root is None
    assert served_model("m", facts, None, state_dtype="auto").state_dtype == "auto"


@check_rows(
    ("runtime", "version", "methods"),
    [
        # looked up in the sources of these releases: vLLM's attention layers, SGLang's model runner
        (RUNTIMES["vllm"], "0.14.0", {"deepseek_v4"}),
        (RUNTIMES["vllm"], "0.15.0", {"compressed-tensors", "deepseek_v4"}),
        (RUNTIMES["vllm"], "0.32.0", {"compressed-tensors", "deepseek_v4"}),
        # of today, where it does not say
        (RUNTIMES["vllm"], None, {"compressed-tensors", "deepseek_v4"}),
        (RUNTIMES["sglang"], "0.5.2", {"deepseek_v4"}),
        (RUNTIMES["sglang"], "0.5.3", {"modelopt/fp8_e4m3", "deepseek_v4"}),
        (RUNTIMES["sglang"], "0.5.23", {"modelopt/fp8_e4m3", "deepseek_v4"}),
        (RUNTIMES["trtllm"], None, {"modelopt"}),
        (RUNTIMES["llamacpp"], None, set()),
    ],
)
def test_what_auto_means_to_an_engine(runtime: Runtime, version: str | None, methods: set[str]) -> None:
    assert served_model("m", ServerFacts(version=version), "auto", runtime).kv_as_calibrated == methods


# --- once -------------------------------------------------------------------------------------------------------------


def once(capsys: pytest.CaptureFixture[str], url: str, tmp_path: Path, model: str, *words: str) -> str:
    file = tmp_path / "exporter.yml"
    file.write_text(
        f"gpu: {{enabled: false}}\ntargets:\n- {{url: '{url}', gpu_model: L40S, gpu_count: 1, batch_limit_requests: 16, model: {model}}}\n"
    )
    assert main(["once", "--config.file", str(file), "--wait", "0.1", *words]) == 0
    return capsys.readouterr().out


@contextmanager
def replayed() -> Iterator[str]:
    """A recorded page and what the server says of its model."""
    with FaultServer({"/metrics": fault.page(EARLY), "/v1/models": models(None)}) as server:
        yield server.url


def test_once_with_a_known_model_shows_its_roofline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with replayed() as url:
        document = json.loads(once(capsys, url, tmp_path, demo_model_config(), "--json"))
        table = once(capsys, url, tmp_path, demo_model_config())
    found = document["models"][NAME]
    assert found["known"] is True
    assert found["family"] == "llama"
    fields = json.loads(Path(demo_model_config()).read_text())
    assert found["parameters_total"] - found["decode_read_parameters"] == fields["vocab_size"] * fields["hidden_size"]
    assert 38e6 < found["parameters_total"] < 38.5e6
    assert found["weight_bytes"] == 2 * found["parameters_total"]
    assert "model_unknown" not in document["signals"].values()
    assert "model tiny-llama is not known" not in table


def test_once_with_an_unknown_model_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with replayed() as url:
        document = json.loads(once(capsys, url, tmp_path, "{name: acme-9}", "--json"))
        table = once(capsys, url, tmp_path, "{name: acme-9}")
    assert document["models"][NAME]["known"] is False
    assert "targets[].model.config" in document["models"][NAME]["problem"]
    assert "model_unknown" in document["signals"].values()
    assert "model tiny-llama is not known: model 'acme-9' is not in the built-in catalogue" in table


def test_a_quantised_checkpoint_is_told_as_such(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = folder(tmp_path / "fp8", {**LLAMA, "quantization_config": FP8})
    with replayed() as url:
        document = json.loads(once(capsys, url, tmp_path, str(place), "--json"))
    assert document["models"][NAME]["weight_formats"] == ["bf16", "fp8_block"]


# --- The book of models: looked up once, kept within bounds, never an exception


SERVED = ServedModel("small")


def layers(found: ModelFacts | FactsError) -> int:
    assert isinstance(found, ModelFacts), found
    return found.geometry.layers


def test_a_model_is_looked_up_once(tmp_path: Path) -> None:
    book, settings = ModelBook(None), ModelSettings(config=str(folder(tmp_path)))
    first = book.find(settings, SERVED)
    (tmp_path / "config.json").unlink()
    assert book.find(settings, SERVED) is first
    assert layers(first) == 8
    # another word of the server is another question
    assert isinstance(book.find(settings, ServedModel("small", dtype="bfloat16")), FactsError)


def test_what_is_not_known_is_an_answer_with_its_reason(tmp_path: Path) -> None:
    book = ModelBook(None)
    unknown = book.find(ModelSettings(), ServedModel("acme/secret-sauce"))
    assert isinstance(unknown, FactsError)
    assert unknown.reason == Absence.MODEL_UNKNOWN
    assert "set targets[].model.config" in str(unknown)
    assert unknown.what + "; " + unknown.fix == str(unknown)
    other = book.find(ModelSettings(config=str(folder(tmp_path, {"model_type": "hyena"}))), SERVED)
    assert isinstance(other, FactsError)
    assert other.reason == Absence.ARCHITECTURE_UNKNOWN


def test_the_cache_is_looked_into_before_the_catalogue(tmp_path: Path) -> None:
    cached(tmp_path, "meta-llama/Llama-3.1-8B")
    served = ServedModel("meta-llama/Llama-3.1-8B")
    assert layers(ModelBook(str(tmp_path)).find(ModelSettings(), served)) == 8
    assert layers(ModelBook(None).find(ModelSettings(), served)) == 32
    assert layers(ModelBook(str(tmp_path / "nowhere")).find(ModelSettings(), served)) == 32


def test_a_server_that_says_ever_new_names_fills_nothing(tmp_path: Path) -> None:
    book, settings = ModelBook(None), ModelSettings(config=str(folder(tmp_path)))
    assert layers(book.find(settings, SERVED)) == 8
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "num_hidden_layers": 3}))
    for number in range(MOST_KEPT):
        assert layers(book.find(settings, SERVED if number == 0 else ServedModel(f"name-{number}"))) == (
            3 if number else 8
        )
    # the first went for the last: it is read anew
    book.find(settings, ServedModel("one more"))
    assert layers(book.find(settings, SERVED)) == 3


def test_a_refusal_holds_nothing_but_its_words(tmp_path: Path) -> None:
    """It is kept: the error that was raised would keep the frames that read the file, and the decoder's error the whole text of it."""
    place = folder(tmp_path)
    (place / "config.json").write_text('{"model_type": "llama", ' + " " * (4 << 20))
    book, settings = ModelBook(None), ModelSettings(config=str(place))
    tracemalloc.start()
    try:
        found = book.find(settings, SERVED)
        gc.collect()
        kept, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(found, FactsError)
    assert "is not valid JSON" in str(found)
    assert most > 4 << 20  # it was read
    assert kept < 1 << 20


def test_a_fault_of_ours_is_an_answer_too(caplog: pytest.LogCaptureFixture) -> None:
    book = ModelBook(cast(Any, 7))  # no folder at all
    with caplog.at_level(logging.ERROR):
        found = book.find(ModelSettings(), ServedModel("acme/m"))
        again = book.find(ModelSettings(), ServedModel("acme/m"))
    assert isinstance(found, FactsError)
    assert (found.reason, str(found)) == ("model_unknown", "looking it up failed (TypeError), see the log")
    assert again is found
    assert len(caplog.records) == 1


# --- Models and reasons that come and go for long: bounds count those that are there, and none that left keeps out a new one


def page_of_names(number: int) -> str:
    return (
        "\n".join(
            f"""vllm:num_requests_running{{engine="0",model_name="{model}"}} 1
vllm:generation_tokens_total{{engine="0",model_name="{model}"}} {100 * (number + 1)}
vllm:request_success_total{{engine="0",finished_reason="stays",model_name="{model}"}} {number}
vllm:request_success_total{{engine="0",finished_reason="reason-{number}",model_name="{model}"}} 1"""
            for model in ("stays", f"passing-{number}")
        )
        + "\n"
    )


@pytest.mark.parametrize("engines", keep_quick([100, MAX_ENGINES], lambda engines: engines == 100))
def test_a_new_name_is_shown_however_many_there_were_before_it(engines: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "MAX_ENGINES", engines)
    # more names than any bound; each tick has one of its own and one that stays
    ticks = engines + 200
    now = [1000.0]
    host = TargetHost(Config(targets=()), monotonic=lambda: now[0], wall=lambda: now[0])
    sizes = []
    with Replica() as server:
        target = Target("t", server.url, gpu_count=1)
        hosted = host.add_target(target)
        store = Store()
        store.add_target(target)
        collector = ViewCollector(store.view, lambda: Setup(15.0, 15.0, "n"), lambda: now[0])
        for number in range(ticks):
            server.show({"/metrics": page_of_names(number)})
            now[0] += 5.0
            store.put_target(hosted.tick())
            if number % 100 == 99 or number == ticks - 1:
                text = encode(collector, "")[0].decode()
                sizes.append(len(text.splitlines()))
                assert f'finished_total{{container="",engine="0",model_name="passing-{number}"' in text
                assert f'reason="reason-{number}"' in text
                stays = (
                    'container="",engine="0",model_name="stays",namespace="",node="",pod="",role="unified",target="t"'
                )
                assert f"decode_tokens_total{{{stays}}} {100.0 * (number + 1)}" in text
                assert f'gpu_seconds_total{{container="",engine="0",model_name="passing-{number}"' in text
        host.close()
    # series of names that left are gone, but for what they cost, of which the last are kept
    assert max(sizes) - min(sizes) < 10 * MOST_NAMES
    assert ticks > MAX_LABEL_VALUES
