"""A stage cannot be a heterogeneous job: Slurm makes one job of each component."""

import time

import pytest
from asa.backends.slurm.commands import CommandLink
from asa.backends.slurm.rest import RestLink

from asa.errors import InputError
from asa.importers.scripts import import_scripts

SCRIPT = "#!/bin/sh\n#SBATCH -n1 -t5\n#SBATCH hetjob\n#SBATCH -n2 -t7\nsleep 60\n"


def test_each_component_is_a_job_that_cannot_be_cancelled_alone(slurm):
    slurm.empty()
    folder = slurm.folder(f"components-{time.time_ns()}")
    (folder / "a.sh").write_text(SCRIPT)
    answered = slurm.run("sbatch", "--parsable", "-H", "-J", "flow.token", "-D", str(folder), str(folder / "a.sh"))
    first, second = int(answered), int(answered) + 1
    for link in (CommandLink(prefix=slurm.prefix), RestLink(f"unix://{slurm.socket}")):
        records = {int(record.job_id): record for record in link.named(["flow.token"])}
        assert {number: record.limit_s for number, record in records.items()} == {first: 300.0, second: 420.0}
        link.close()
    slurm.run("scancel", f"{first}+1", check=False)
    assert len(slurm.run("squeue", "-h", "-o", "%i").split()) == 2
    slurm.run("scancel", str(first))
    assert not slurm.run("squeue", "-h", "-o", "%i").split()
    with pytest.raises(RuntimeError, match="Invalid job array specification"):
        slurm.run("sbatch", "-a", "1-2", str(folder / "a.sh"))


def test_what_sbatch_takes_for_one_is_refused_for_that(slurm, tmp_path):
    """On a command line a colon separates components; in a script `hetjob` does, and a colon is refused."""
    folder = slurm.folder(f"forms-{time.time_ns()}")
    files = {name: folder / name for name in ("word.sh", "colon.sh", "plain.sh")}
    files["word.sh"].write_text(SCRIPT)
    files["colon.sh"].write_text("#!/bin/sh\n#SBATCH -n1 : -n2\ntrue\n")
    files["plain.sh"].write_text("#!/bin/sh\n#SBATCH -t1\ntrue\n")
    slurm.run("sbatch", "--test-only", str(files["word.sh"]))
    slurm.run("sbatch", "--test-only", "-n1", ":", "-n2", str(files["plain.sh"]))
    with pytest.raises(RuntimeError, match="Unexpected"):
        slurm.run("sbatch", "--test-only", str(files["colon.sh"]))
    driver = tmp_path / "run.sh"
    driver.write_text(f"#!/bin/sh\nsbatch -n1 : -n2 {files['plain.sh']}\n")
    for path in (files["word.sh"], driver):
        with pytest.raises(InputError, match="is a heterogeneous job"):
            import_scripts([path])
    with pytest.raises(InputError, match="is no option"):
        import_scripts([files["colon.sh"]])
