cwlVersion: v1.2
class: Workflow
doc: Queries are searched in parts in a database that is made first; the best hit of each is kept.
requirements:
  ScatterFeatureRequirement: {}
  MultipleInputFeatureRequirement: {}
inputs:
  genome: File
  parts: File[]
outputs:
  best: {type: File, outputSource: best/out}
  counted: {type: File, outputSource: count/out}
steps:
  database:
    run:
      id: database
      class: CommandLineTool
      baseCommand: [sh, -c, 'makeblastdb -in "$1" -dbtype nucl -out db -title db >log && tar -cf db.tar db.*', database]
      requirements: {ResourceRequirement: {coresMin: 1, ramMin: 256}}
      inputs: {genome: {type: File, inputBinding: {position: 1}}}
      outputs: {out: {type: File, outputBinding: {glob: db.tar}}}
    in: {genome: genome}
    out: [out]
  search:
    scatter: part
    run:
      id: search
      class: CommandLineTool
      baseCommand: [sh, -c, 'tar -xf "$1" && blastn -db db -query "$2" -outfmt 6 -num_threads 2', search]
      requirements: {ResourceRequirement: {coresMin: 2, ramMin: 512}}
      inputs:
        database: {type: File, inputBinding: {position: 1}}
        part: {type: File, inputBinding: {position: 2}}
      outputs: {out: stdout}
      stdout: hits.tsv
    in: {database: database/out, part: parts}
    out: [out]
  best:
    run:
      id: best
      class: CommandLineTool
      baseCommand: [sh, -c, 'cat "$@" | LC_ALL=C sort -k1,1 -k12,12gr -k2,2 -k9,9n | awk ''!seen[$1]++''', best]
      requirements: {ResourceRequirement: {coresMin: 4, ramMin: 1024}}
      inputs: {hits: {type: "File[]", inputBinding: {position: 1}}}
      outputs: {out: stdout}
      stdout: best.tsv
    in: {hits: search/out}
    out: [out]
  count:
    run:
      id: count
      class: CommandLineTool
      baseCommand: [sh, -c, 'cut -f2 "$1" | LC_ALL=C sort | uniq -c', count]
      requirements: {ResourceRequirement: {coresMin: 6, ramMin: 1024}}
      inputs: {best: {type: File, inputBinding: {position: 1}}}
      outputs: {out: stdout}
      stdout: counted.txt
    in: {best: best/out}
    out: [out]
