cwlVersion: v1.2
class: Workflow
doc: Words of a text in four levels, of which two have two jobs; each level has wider jobs, so that no worker runs two.
inputs:
  text: File
  seconds: {type: string, default: "0"}
outputs:
  summary: {type: File, outputSource: summary/out}
steps:
  words:
    run:
      id: words
      class: CommandLineTool
      baseCommand: [sh, -c, 'sleep $2; tr -cs A-Za-z "\n" <"$1" | tr A-Z a-z', words]
      requirements: {ResourceRequirement: {coresMin: 1, ramMin: 128}}
      inputs:
        text: {type: File, inputBinding: {position: 1}}
        seconds: {type: string, inputBinding: {position: 2}}
      outputs: {out: stdout}
      stdout: words.txt
    in: {text: text, seconds: seconds}
    out: [out]
  frequent:
    run:
      id: frequent
      class: CommandLineTool
      baseCommand: [sh, -c, 'sleep $2; LC_ALL=C sort "$1" | uniq -c | LC_ALL=C sort -k1,1nr -k2,2 | head -n 20', frequent]
      requirements: {ResourceRequirement: {coresMin: 2, ramMin: 256}}
      inputs:
        words: {type: File, inputBinding: {position: 1}}
        seconds: {type: string, inputBinding: {position: 2}}
      outputs: {out: stdout}
      stdout: frequent.txt
    in: {words: words/out, seconds: seconds}
    out: [out]
  longest:
    run:
      id: longest
      class: CommandLineTool
      baseCommand: [sh, -c, 'sleep $2; awk "{print length, \$0}" "$1" | LC_ALL=C sort -u -k1,1nr -k2,2 | head -n 20', longest]
      requirements: {ResourceRequirement: {coresMin: 2, ramMin: 256}}
      inputs:
        words: {type: File, inputBinding: {position: 1}}
        seconds: {type: string, inputBinding: {position: 2}}
      outputs: {out: stdout}
      stdout: longest.txt
    in: {words: words/out, seconds: seconds}
    out: [out]
  both:
    run:
      id: both
      class: CommandLineTool
      baseCommand: [sh, -c, 'sleep $3; paste "$1" "$2"', both]
      requirements: {ResourceRequirement: {coresMin: 3, ramMin: 384}}
      inputs:
        frequent: {type: File, inputBinding: {position: 1}}
        longest: {type: File, inputBinding: {position: 2}}
        seconds: {type: string, inputBinding: {position: 3}}
      outputs: {out: stdout}
      stdout: both.txt
    in: {frequent: frequent/out, longest: longest/out, seconds: seconds}
    out: [out]
  summary:
    run:
      id: summary
      class: CommandLineTool
      baseCommand: [sh, -c, 'sleep $2; cksum <"$1"; cat "$1"', summary]
      requirements: {ResourceRequirement: {coresMin: 4, ramMin: 512}}
      inputs:
        both: {type: File, inputBinding: {position: 1}}
        seconds: {type: string, inputBinding: {position: 2}}
      outputs: {out: stdout}
      stdout: summary.txt
    in: {both: both/out, seconds: seconds}
    out: [out]
