"""Slurm's answers to a submission and their meanings, in one table for commands and the REST API.

Each row has Slurm's number (``-`` if there is none), its meaning, its source, and its text. Rows with a number are from
Slurm's ``slurm_errno.h`` and ``slurm_errno.c``, with the first and the last release that has them, from 20.02 to 26.05;
long texts are cut. Numbers that never answer a submission are left out: those of daemons on nodes, of changes to jobs,
nodes and reservations, and of accounting's tables. Rows without a number are texts that Slurm's commands, ssh and the
shell print, with the source file in Slurm, or the program that was seen to print them. ``*`` is any text in a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Final


class Meaning(Enum):
    """The meaning of an answer to a submission."""

    NEVER = "never"
    """Slurm has refused the request for good."""
    LIMIT = "limit"
    """A limit is exceeded: on the number of jobs, which passes, or on the request of a job."""
    LATER = "later"
    """Slurm does not accept the job now."""
    AWAY = "away"
    """The request reached no daemon that could accept it."""
    DOUBT = "doubt"
    """The job may have been accepted."""
    UNKNOWN = "unknown"
    """The text is unknown, or may be temporary: the controller knows no user while LDAP is away."""


CUT_OFF: Final = "asa: the script did not arrive whole"
"""The remote shell prints this instead of running ``sbatch`` if the script arrived incompletely."""

_LAST_OF_THE_WAY: Final = 6000


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """A known answer of Slurm."""

    number: int | None
    meaning: Meaning
    source: str  # releases that have it, a file of Slurm's sources, or the program that was seen to print it
    words: str  # as printed, perhaps only the beginning

    @property
    def pattern(self) -> str:
        """A regular expression for its text."""
        return ".*?".join(map(re.escape, self.words.split("*")))

    @property
    def is_of_the_way(self) -> bool:
        """Whether the answer is about the connection, rather than about the request sent over it."""
        return self.number is None or self.number < _LAST_OF_THE_WAY

    def is_said(self, text: str) -> bool:
        """Whether a given text contains the text of this answer."""
        if "*" not in self.words:
            return self.words in text
        return any(_is_in_order(self.words.split("*"), line) for line in text.splitlines())


def _is_in_order(parts: Sequence[str], line: str) -> bool:
    """Whether a line contains the given parts, in their order."""
    at = 0
    for part in parts:
        if (position := line.find(part, at)) < 0:
            return False
        at = position + len(part)
    return True


_BY_NUMBER: Final = """\
 1000 doubt 20.02-26.05 Unexpected message received
 1001 doubt 20.02-26.05 Communication connection failure
 1002 doubt 20.02-26.05 Message send failure
 1003 doubt 20.02-26.05 Message receive failure
 1004 doubt 20.02-26.05 Communication shutdown failure
 1005 doubt 20.02-26.05 Incompatible versions of client and server code
 1006 doubt 20.02-26.05 I/O stream version number error
 1007 doubt 20.02-26.05 Protocol authentication error
 1008 doubt 20.02-26.05 Insane message length
 1009 doubt 20.02-26.05 Invalid MPI plugin name
 1010 doubt 20.02-26.05 MPI plugin's pre-launch setup failed
 1011 doubt 20.02-26.05 Plugin initialization failed
 1012 doubt 20.02-26.05 Can't find an address, check slurm.conf
 1013 doubt 21.08-26.05 Unexpected missing socket error
 1014 doubt 24.11-26.05 Unable to process incoming file descriptor
 1015 doubt 24.11-26.05 Unable to process outgoing file descriptor
 1016 doubt 24.11-26.05 Unable to process incoming and outgoing file descriptors
 1017 doubt 26.05-26.05 Read would block
 1018 doubt 26.05-26.05 Write would block
 1019 doubt 26.05-26.05 Connection rejected by handler
 1020 doubt 26.05-26.05 Connection forced closed by quiesce timeout
 1021 doubt 26.05-26.05 Connection timed out establishing
 1022 doubt 26.05-26.05 Connection timed out writing
 1023 doubt 26.05-26.05 Connection timed out reading
 1800 away  20.02-26.05 Unable to contact slurm controller (connect failure)
 1801 doubt 20.02-26.05 Unable to contact slurm controller (send failure)
 1802 doubt 20.02-26.05 Unable to contact slurm controller (receive failure)
 1803 doubt 20.02-26.05 Unable to contact slurm controller (shutdown failure)
 1804 away  23.02-26.05 Rate limit exceeded, please retry momentarily
 1805 away  24.05-26.05 Rate limit exceeded, please retry later
 2000 never 20.02-26.05 Invalid partition name specified
 2001 never 20.02-26.05 No partition specified or system default partition
 2002 never 20.02-26.05 Access/permission denied
 2003 unknown 20.02-26.05 User's group not permitted to use this partition
 2004 never 20.02-26.05 Requested nodes not in this partition
 2005 never 20.02-26.05 More processors requested than permitted
 2006 never 20.02-26.05 Node count specification invalid
 2007 later 20.02-25.11 Unable to create job record, try again
 2007 later 26.05-26.05 MaxJobCount limit reached
 2008 never 20.02-26.05 Job size specification needs to be provided
 2009 never 20.02-26.05 Job script not specified
 2010 unknown 20.02-26.05 Invalid user id
 2011 never 20.02-26.05 Duplicate job id
 2012 never 20.02-26.05 Pathname of a file, directory or other parameter too long
 2013 never 20.02-26.05 Immediate execution impossible, insufficient priority
 2014 never 20.02-26.05 Requested node configuration is not available
 2015 never 20.02-26.05 Requested partition configuration not available now
 2016 later 20.02-26.05 Requested nodes are busy
 2017 never 20.02-26.05 Invalid job id specified
 2018 never 20.02-26.05 Invalid node name specified
 2019 later 20.02-26.05 I/O error writing script/environment to file
 2022 doubt 20.02-26.05 Error configuring interconnect
 2023 never 20.02-26.05 Task distribution specification invalid
 2025 never 20.02-26.05 Task count specification invalid
 2026 doubt 20.02-26.05 Error generating job credential
 2027 away  20.02-26.05 Slurm backup controller in standby mode
 2029 never 20.02-26.05 Invalid feature specification
 2035 never 20.02-26.05 Immediate execution impossible, resources too fragmented for allocation
 2036 never 20.02-26.05 Requested operation not supported on this system
 2037 never 20.02-26.05 Requested operation is presently disabled
 2038 never 20.02-26.05 Job dependency problem
 2039 never 20.02-26.05 Only batch jobs are accepted or processed
 2040 never 20.02-22.05 Current SwitchType does not permit arbitrary task distribution
 2040 later 23.02-26.05 Licenses currently unavailable
 2041 never 20.02-22.05 Requested more tasks than available processors
 2044 never 20.02-26.05 Memory required by task is not available
 2045 never 20.02-26.05 Invalid account or account/partition combination specified
 2048 never 20.02-26.05 Invalid license specification
 2050 limit 20.02-26.05 Job violates accounting/QOS policy
 2051 never 20.02-26.05 Requested time limit is invalid (missing or exceeds some limit)
 2052 never 20.02-26.05 Access denied to requested reservation
 2053 never 20.02-26.05 Requested reservation is invalid
 2054 never 20.02-26.05 Invalid time specified
 2055 later 20.02-26.05 Requested reservation is in use
 2056 later 20.02-26.05 Requested reservation not usable now
 2057 never 20.02-26.05 Invalid wckey specification
 2059 later 20.02-26.05 Required ports are in use
 2060 never 20.02-26.05 Requires more ports than can be reserved
 2063 never 23.11-26.05 Job cannot be submitted without the current working directory specified
 2066 never 20.02-26.05 Invalid qos specification
 2068 later 20.02-26.05 Required node not available
 2069 never 20.02-26.05 CPU count specification invalid
 2070 later 20.02-26.05 Required partition not available
 2071 never 20.02-26.05 Circular job dependency
 2072 never 20.02-26.05 Invalid generic resource (gres) specification
 2074 later 20.02-26.05 Requested account has breached requested QOS usage threshold
 2078 never 20.02-26.05 Job can not start immediately
 2079 later 20.02-25.05 Switch resources currently not available
 2081 never 20.02-26.05 Invalid job array specification
 2090 doubt 20.02-26.05 Slurm internal error, contact system administrator
 2092 never 20.02-26.05 Burst Buffer permission denied
 2093 never 20.02-26.05 Burst Buffer resource limit exceeded
 2094 never 20.02-26.05 Burst Buffer request invalid
 2096 later 20.02-20.02 Required power not available now
 2097 later 20.02-20.02 Required power at least partially reserved
 2098 never 20.02-20.02 Required powercap is not valid, check min/max values
 2099 never 20.02-26.05 Invalid mcs_label specified
 2100 later 20.02-26.05 Waiting for burst buffer
 2101 later 20.02-26.05 Partition in DOWN state
 2102 never 20.02-26.05 Duplicate generic resource (gres) specification
 2103 later 20.02-24.05 Job update not available right now, the DB index is being set, try again in a bit
 2105 later 20.02-26.05 System submissions disabled
 2112 never 20.02-26.05 X11 forwarding not available
 2113 unknown 20.02-26.05 Invalid group id
 2114 never 20.02-24.05 Job --batch option is invalid or not a subset of --constraints
 2114 never 24.11-26.05 Job --batch option is invalid or not a subset of --constraint
 2115 never 20.02-26.05 Invalid Trackable RESource (TRES) specification
 2118 later 20.02-26.05 Job can not start due to maintenance reservation
 2119 never 20.02-26.05 Invalid GRES specification (with and without type identification)
 2120 later 20.02-26.05 Reboot already in progress
 2121 never 20.02-26.05 Multiple KNL NUMA and/or MCDRAM constraints require use of a heterogeneous job
 2122 never 20.02-26.05 Requested GRES option unsupported by configured SelectType plugin
 2123 never 20.02-26.05 Invalid --nice value
 2124 never 20.02-26.05 Invalid time-min specification (exceeds job's time or other limits)
 2125 later 20.02-26.05 Immediate execution impossible. Individual job submission scheduling attempts
 2127 never 20.02-26.05 Environment is missing in job
 2130 never 20.11-26.05 Multiple partition job request not supported when a partition is set in the
 2131 away  21.08-26.05 Controller is in standby mode, try a different controller
 2132 never 21.08-26.05 Cannot request more threads per core than the job allocation
 2133 never 22.05-26.05 Invalid preferred feature specification
 2134 never 22.05-26.05 Insufficient GRES available in allocation
 2135 never 23.02-26.05 Invalid container id specified
 2163 unknown 23.11-26.05 Invalid group ID
 2164 away  23.11-26.05 Unable to resolve group ID to group name
 2165 unknown 23.11-26.05 Invalid user ID
 2166 away  23.11-26.05 Unable to resolve user ID to user name
 2170 never 23.11-26.05 Invalid QOS specification, relative QOS can only be used in a single partition per
 2171 never 23.11-26.05 Invalid extra constraints specification
 2174 never 24.05-26.05 RestrictedCoresPerGPU: Not enough unique cores per GPU
 2175 never 24.05-26.05 RestrictedCoresPerGPU: Missing core topology for GPUs
 2176 never 24.05-26.05 RestrictedCoresPerGPU: No GPUs configured on node
 2177 later 24.05-26.05 Max powered up nodes reached
 2178 never 24.11-26.05 Requested topology configuration is not available
 2179 never 24.11-26.05 Preemption is required but is disabled on this system
 2189 never 26.05-26.05 Invalid configuration for external job
 5000 doubt 20.02-22.05 Received zero length message
 5001 doubt 20.02-22.05 Received message length < 0
 5002 doubt 20.02-22.05 Failed to send entire message
 5003 doubt 20.02-26.05 Header lengths are longer than data received
 5004 doubt 20.02-26.05 Socket timed out on send/recv operation
 5005 doubt 20.02-26.05 Zero Bytes were transmitted or received
 6000 doubt 20.02-26.05 Invalid authentication credential
 6001 doubt 20.02-22.05 Failed to open authentication public key
 6001 doubt 24.11-26.05 Authentication credential expired
 6002 doubt 20.02-22.05 Failed to connect to authentication agent
 6004 doubt 20.02-26.05 Bad argument to plugin function
 6005 doubt 20.02-22.05 Memory management error
 6006 doubt 20.02-22.05 Authentication credential invalid
 6007 doubt 20.02-26.05 Cannot unpack credential
 6008 doubt 20.11-26.05 Authentication does not apply to request
 6009 doubt 23.02-26.05 Token Generation failed
 6010 doubt 25.11-26.05 Rejecting authentication of user nobody or group nobody
 6011 doubt 25.11-26.05 Unable to query kernel for socket peer credential
 7000 doubt 20.02-26.05 Unable to connect to database
 7008 doubt 20.11-26.05 Database connection reference is invalid
 7104 doubt 20.02-26.05 Invalid cluster name
 7105 doubt 20.02-26.05 Job locked by another sibling
 7106 doubt 20.02-26.05 No eligible clusters for federated job
 8000 never 20.02-26.05 Time limit specification required, but not provided
 8001 never 20.02-25.05 Invalid KNL configuration (MCDRAM or NUMA option)
 8002 doubt 21.08-26.05 Plugin has invalid format or unable to be loaded
 8003 doubt 21.08-26.05 Plugin missing required symbol or function
 8004 doubt 23.02-23.02 Required plugin type not loaded or initalized
 8004 doubt 23.11-26.05 Required plugin type not loaded or initialized
 8005 doubt 23.11-26.05 Plugin file not found
 8006 doubt 23.11-26.05 Plugin access denied
 8007 doubt 23.11-26.05 Dlopen of plugin file failed
 8008 doubt 23.11-26.05 Plugin init() callback failed
 8009 doubt 23.11-26.05 Plugin name/type/version symbol missing
 8010 doubt 23.11-26.05 Incompatible plugin version
 9000 never 20.11-26.05 Query empty or not RFC7320 compliant
 9001 never 20.11-26.05 Failure during parsing
 9002 never 20.11-26.05 Jobs description entry not found, empty or not dictionary or list
 9004 away  23.02-26.05 Missing UNIX user in the system
 9005 away  23.02-26.05 Missing UNIX group in the system
 9006 away  25.11-26.05 Unable to find requested URL endpoint. Please query the '/openapi/v3' endpoint or
 9007 away  25.11-26.05 Requested HTTP query method is not supported at URL endpoint. Please query the
 9008 away  25.11-26.05 Authentication failure
 9009 doubt 26.05-26.05 Query requirements not met
 9200 never 20.11-26.05 Unable to resolve path
 9201 never 20.11-26.05 Data pointer is NULL
 9202 never 20.11-26.05 Unable to convert Data type
 9203 never 20.11-26.05 Unable to compile regex
 9204 never 21.08-26.05 MIME type is unknown to any loaded plugins
 9205 never 21.08-22.05 DATA too large to handle
 9205 never 23.02-26.05 Data too large to handle
 9206 never 23.02-26.05 Data parser expects flags to be a list
 9207 never 23.02-26.05 Data parser unable to parse invalid flag
 9208 never 23.02-26.05 Data parser expected a list
 9209 never 23.02-26.05 Data parser expected a dictionary or object
 9210 never 23.02-26.05 Request matched more than one object to modify. Modifications must only apply to a
 9211 never 23.02-26.05 Request matched more than one object to query. Request is limited to query of a
 9212 never 23.02-26.05 Request to parse empty string rejected
 9213 never 23.11-26.05 Invalid parser requested
 9214 never 24.05-26.05 Parsing tree too deep. Possible cyclic parsing detected
 9215 never 24.05-26.05 Parser went into an invalid state. Possible library issue
 9216 never 25.11-26.05 Request to parse invalid data
10000 doubt 22.05-26.05 Container support is not configured
13000 doubt 25.11-26.05 TLS missing but required for connection
"""
_BY_SBATCH: Final = """\
never slurm_opt.c Invalid --* specification
never slurm_opt.c Invalid --* argument
never slurm_opt.c Invalid -W umask= specification
never slurm_opt.c Invalid numeric value
never slurm_opt.c Invalid signal name or number
never slurm_opt.c Invalid node list specified
never slurm_opt.c Invalid TRES for --tres-per-task
never slurm_opt.c Invalid --tres-per-task
never slurm_opt.c Invalid --gres-flags combo
never slurm_opt.c invalid --profile=* option
never slurm_opt.c Priority must be
never slurm_opt.c only permitted by root user
never slurm_opt.c mutually exclusive
never slurm_opt.c node count must be evenly divisible by segment size
never slurm_opt.c is incompatible with --distribution=arbitrary
never opt.c Script arguments not permitted with
never opt.c Invalid directive found in batch script
never opt.c invalid number of tasks (-n
never opt.c invalid number of cpus per task (-c
never opt.c invalid number of nodes (-N
never opt.c Too few processes for the requested
never opt.c can not be bigger than --threads-per-core
never opt.c Incompatible begin and deadline time specification
never opt.c Cannot specify both --burst-buffer and --bbf
never opt.c to use --resv-ports for job allocations
never opt.c Unmatched `*` in [
never opt.c Invalid --bbf specification
never opt.c Invalid --nodefile node file
never sbatch.c Unable to open file
never sbatch.c,26.05 Batch script is empty!
never sbatch.c,26.05 This does not look like a batch script
never sbatch.c Batch script contains DOS line breaks
never sbatch.c contain a NULL character
never proc_args.c is not a valid node count
never proc_args.c unrecognized --* argument
never proc_args.c Invalid time specification (pos=
never glibc,22.05 sbatch: unrecognized option
never glibc,22.05 sbatch: invalid option --
never glibc,22.05 sbatch: option * requires an argument
never glibc,22.05 sbatch: option * doesn't allow an argument
never glibc,22.05 sbatch: option * is ambiguous
never opt.c,22.05 cli_filter plugin terminated with error
later sbatch.c Slurm temporarily unable to accept job
later sbatch.c Slurm job queue full
later sbatch.c Job creation temporarily disabled
later errno,EAGAIN Batch job submission failed: Resource temporarily unavailable
away read_config.c,26.05 Unable to process configuration file
away parse_config.c,26.05 s_p_parse_file: cannot stat file
away parse_config.c,26.05 s_p_parse_file: unable to read
away read_config.c,26.05 ClusterName needs to be specified
away fetch_config.c Could not establish a configuration source
away fetch_config.c failed to fetch config
away fetch_config.c,22.05 fetch_config: DNS SRV lookup failed
away plugin.c,22.05 Can't find plugin for
away plugin.c,22.05 Couldn't find the specified plugin name for
away plugin.c,22.05 Couldn't load specified plugin name for
away plugin.c,26.05 cannot create * context for
away plugin.c,22.05 cannot find * plugin for
away plugin.c,26.05 failed to initialize * plugin
away spank.c,26.05 Failed to initialize plugin stack
away spank.c,26.05 Plugin stack post-option processing failed
away spank.c,26.05 Failed to load plugin
away auth_munge.c,26.05 Munge encode failed
away slurm_protocol_api.c,26.05 auth_g_create: * has authentication error
away sbatch.c getcwd failed
away slurmdb,22.05 can't be reached now, or it is an invalid entry for --cluster
away ld.so,22.05 error while loading shared libraries
away ld.so symbol lookup error
away ld.so relocation error
away glibc,22.05 version `*' not found (required by
"""
_BY_OTHERS: Final = f"""\
away OpenSSH ssh: connect to host
away OpenSSH ssh: Could not resolve hostname
away OpenSSH Permission denied (
away OpenSSH Host key verification failed
away OpenSSH Too many authentication failures
away OpenSSH kex_exchange_identification:
away OpenSSH ssh_exchange_identification:
away OpenSSH Connection closed by * [preauth]
away OpenSSH stdio forwarding failed
away OpenSSH exec request failed on channel
away OpenSSH No route to host
away pam_nologin System is booting up
away dash Cannot fork
away bash fork: retry:
away bash fork: Resource temporarily unavailable
away bash fork: Cannot allocate memory
away timeout,env fork system call failed
away asa {CUT_OFF}
doubt libc Connection reset
doubt libc Connection timed out
doubt libc Broken pipe
"""


@cache
def rows() -> tuple[AnswerRow, ...]:
    """Return all rows, as listed."""
    return tuple(_read())


def _read() -> Iterator[AnswerRow]:
    for line in _BY_NUMBER.splitlines():
        number, meaning, source, words = line.split(maxsplit=3)
        yield AnswerRow(int(number), Meaning(meaning), source, words)
    for line in (_BY_SBATCH + _BY_OTHERS).splitlines():
        meaning, source, words = line.split(maxsplit=2)
        yield AnswerRow(None, Meaning(meaning), source, words)


def row_of(number: int | None, text: str) -> AnswerRow | None:
    """Return the row of an answer: by its number, if Slurm gives one, else by the longest matching text.

    Some numbers have changed their meaning between releases; then the text decides, else the latest release.

    Examples
    --------
    >>> row_of(2040, "Licenses currently unavailable").meaning.name, row_of(None, "Job dependency problem").number
    ('LATER', 2038)
    """
    if number is not None and (of_number := [row for row in rows() if row.number == number]):
        return next((row for row in of_number if row.is_said(text)), of_number[-1])
    return max((row for row in rows() if row.is_said(text)), key=lambda row: len(row.words), default=None)


def rows_in(text: str) -> list[AnswerRow]:
    """Return all rows whose texts are in a text."""
    return [row for row in rows() if row.is_said(text)]
