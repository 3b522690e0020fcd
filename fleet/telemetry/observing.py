"""What happened, as the recorder hears of it: the same calls, misses, searches and lists that the ledger gets."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from foretool.server.config.loader import LiveConfig
from foretool.server.recording.recorder import Recorder
from foretool.storage.records import Call, Discovery, Exposure, Miss, Person, SessionRecord
from foretool.storage.store import Store


class Observer:
    """Takes what happened; each method returns at once. A subclass overrides those that it needs."""

    def on_call(self, call: Call) -> None:
        """A call of a tool has ended."""

    def on_miss(self, miss: Miss) -> None:
        """A tool was needed that the client did not see."""

    def on_discovery(self, discovery: Discovery) -> None:
        """A search was answered."""

    def on_exposure(self, exposure: Exposure) -> None:
        """A list, or another text with tools, goes to a client."""

    def on_session(self, session: SessionRecord) -> None:
        """A session began."""

    def on_session_end(self, key: str) -> None:
        """A session has ended."""


class ObservedRecorder(Recorder):
    """Tells observers what it records, also what the store refuses."""

    def __init__(
        self, observers: Sequence[Observer], store: Store, config: LiveConfig, clock: Callable[[], float]
    ) -> None:
        super().__init__(store, config, clock)
        self._observers = observers

    def call(self, call: Call, misses: Sequence[Miss] = ()) -> None:
        super().call(call, misses)
        for observer in self._observers:
            observer.on_call(call)
            for miss in misses:
                observer.on_miss(miss)

    def miss(self, miss: Miss) -> None:
        super().miss(miss)
        for observer in self._observers:
            observer.on_miss(miss)

    def exposure(self, exposure: Exposure) -> int:
        for observer in self._observers:
            observer.on_exposure(exposure)
        return super().exposure(exposure)

    def discovery(self, discovery: Discovery) -> int:
        for observer in self._observers:
            observer.on_discovery(discovery)
        return super().discovery(discovery)

    def begin_session(self, session: SessionRecord, person: Person | None = None) -> None:
        for observer in self._observers:
            observer.on_session(session)
        super().begin_session(session, person)

    def end_session(self, key: str) -> None:
        for observer in self._observers:
            observer.on_session_end(key)
        super().end_session(key)
