#!/usr/bin/env bash
# Ctrl-C in a terminal: the ranks save a checkpoint and end with 75, and a second Ctrl-C does no harm. What is typed reaches rank 0.
source "$(dirname "$0")/../common.sh"
cat >terminal.py <<'PYTHON'
import json, os, pathlib, pty, select, signal, sys

class Terminal:
    """A command as the foreground job of a pseudo-terminal."""

    def __init__(self, *command):
        signal.alarm(100)
        self.pid, self.screen = pty.fork()
        if self.pid == 0:
            os.execv(command[0], command)
        self.text = ""

    def type(self, text):
        os.write(self.screen, text.encode())

    def show(self):  # False at the end
        try:
            piece = os.read(self.screen, 65536).decode(errors="replace")
        except OSError:  # EIO: no process has the terminal open
            piece = ""
        self.text += piece
        return piece != ""

    def wait_for(self, text):
        while text not in self.text:
            if not self.show(): sys.exit(f"it ended before {text!r}: {self.text}")

    def end(self):
        while self.show(): pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

def descendants(pid):
    children = [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return children + [further for child in children for further in descendants(child)]

def check(condition, text):
    if not condition: sys.exit(text)

farandole = sys.argv[1]
for times in 1, 2:
    run = f"stopped.{times}"
    job = Terminal(farandole, "run", "-n", "2", "--", farandole, "train", "--model", "mlp", "--data", "synthetic", "--width", "64",
                   "--epochs", "1000000", "--log-steps", "1", "--timeline", "off", "--run-dir", run)
    metrics = pathlib.Path(run, "metrics.jsonl")
    while not metrics.exists() or metrics.stat().st_size == 0:
        check(job.show(), f"it ended early: {job.text}")
    processes = descendants(job.pid)
    check(len(processes) >= 5, f"mpirun, 2 supervisors and 2 ranks are not all there: {processes}")
    ends = [os.pidfd_open(process) for process in processes]
    job.type("\x03" * times)
    code = job.end()
    check(code == 75, f"exit code {code} after {times} Ctrl-C: {job.text}")
    check("stop requested: saved at step" in job.text, job.text)
    record = json.loads(pathlib.Path(run, "launch", "rank-0001.json").read_text())
    check(record["asked_signal"] == signal.SIGINT, "mpirun has told the ranks to end, and would have killed them soon")
    check(list(pathlib.Path(run, "checkpoints").glob("step-*.h5")), "there is no checkpoint")
    for process, end in zip(processes, ends):
        check(select.select([end], [], [], 20)[0], f"process {process} is left behind")

job = Terminal(farandole, "run", "-n", "2", "--", "bash", "-c", '[[ $RANK != 0 ]] || { echo asked; read -r line; echo "heard $line"; }')
job.wait_for("asked")
job.type("a line\n")
job.wait_for("heard a line")
check(job.end() == 0, job.text)
PYTHON
/usr/bin/python3 terminal.py "$bin/farandole" || fail "see above"
