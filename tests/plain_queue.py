"""A queue that is slow and plain: second by second, written apart from the engine, to check it against."""


def simulate(capacity, jobs, *, backfill=True):
    """Start times under first come first served with EASY backfilling.

    `jobs` are (submit, run, request, cores) in queue order; runs are cut to requests. One second at a time: ends, then
    submissions, then one pass.
    """
    starts = [None] * len(jobs)
    waiting, now, left = [], min((j[0] for j in jobs), default=0), len(jobs)

    def running(at):
        return [i for i, s in enumerate(starts) if s is not None and s <= at < s + min(jobs[i][1], jobs[i][2])]

    def free(at):
        return capacity - sum(jobs[i][3] for i in running(at))

    while left:
        waiting += [i for i, job in enumerate(jobs) if job[0] == now]
        while waiting and jobs[waiting[0]][3] <= free(now):
            starts[waiting.pop(0)] = now
            left -= 1
        if backfill and waiting:
            need = jobs[waiting[0]][3]
            promised = sorted((starts[i] + jobs[i][2], jobs[i][3]) for i in running(now))
            shadow = (
                next(end for end, _ in promised if free(now) + sum(width for e, width in promised if e <= end) >= need)
                if promised
                else now
            )
            extra = free(now) + sum(width for end, width in promised if end <= shadow) - need
            for i in list(waiting[1:]):
                _, _, request, cores = jobs[i]
                if cores > free(now):
                    continue
                if now + request > shadow:
                    if cores > extra:
                        continue
                    extra -= cores
                waiting.remove(i)
                starts[i] = now
                left -= 1
        now += 1
    return starts
