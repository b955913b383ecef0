"""The clusters of other tests have the described nodes, partitions and accounts."""


def test_it_runs_jobs(slurm):
    assert slurm.version.startswith(f"{slurm.release}.")
    slurm.run("srun", "-N1", "true")
    assert "normal" in slurm.run("sinfo", "-h")


def test_the_controller_can_go_and_come_back(slurm):
    slurm.stop_controller()
    assert "DOWN" in slurm.run("scontrol", "ping", check=False)
    slurm.start_controller()
    assert "UP" in slurm.run("scontrol", "ping")
