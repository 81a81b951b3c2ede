"""A run that is marked, so that nothing of it can be left behind, from its begin to its end."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

from serve_bench.serving.strays import Reaped, new_run, reap, start_warden


@dataclass
class Marked:
    """A run with its mark, its directory and the warden that ends it when this process dies."""

    run_id: str
    warden: subprocess.Popen[bytes]

    @classmethod
    def begin(cls) -> Marked:
        """Raises RunFailed where no warden comes up."""
        run_id = new_run()
        return cls(run_id, start_warden(run_id))

    def end(self) -> tuple[Reaped, bool]:
        """Ends whatever the run started; and whether its warden had died before."""
        reaped = reap(self.run_id)
        died = self.warden.poll() is not None
        if self.warden.stdin is not None:
            self.warden.stdin.close()
        self.warden.wait()
        return reaped, died
