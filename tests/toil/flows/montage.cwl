cwlVersion: v1.2
class: Workflow
doc: Images of the sky become one mosaic, each projected, then corrected by the planes in which they differ, in jobs of their own.
requirements:
  ScatterFeatureRequirement: {}
inputs:
  images: File[]
outputs:
  mosaic: {type: File, outputSource: add/mosaic}
  picture: {type: File, outputSource: picture/out}
steps:
  header:
    run:
      id: header
      class: CommandLineTool
      baseCommand: [sh, -c, 'mkdir raw && cp "$@" raw && mImgtbl raw raw.tbl && mMakeHdr raw.tbl region.hdr', header]
      requirements: {ResourceRequirement: {coresMin: 1, ramMin: 256}}
      inputs: {images: {type: "File[]", inputBinding: {position: 1}}}
      outputs: {out: {type: File, outputBinding: {glob: region.hdr}}}
    in: {images: images}
    out: [out]
  project:
    scatter: image
    run:
      id: project
      class: CommandLineTool
      baseCommand: [sh, -c, 'name=$(basename "$1" .fits) && mProjectPP "$1" $name.fits "$2" && tar -cf projected.tar $name.fits ${name}_area.fits', project]
      requirements: {ResourceRequirement: {coresMin: 2, ramMin: 512}}
      inputs:
        image: {type: File, inputBinding: {position: 1}}
        header: {type: File, inputBinding: {position: 2}}
      outputs: {out: {type: File, outputBinding: {glob: projected.tar}}}
    in: {image: images, header: header/out}
    out: [out]
  planes:
    run:
      id: planes
      class: CommandLineTool
      baseCommand:
        - sh
        - -ec
        - |
          header=$1; shift; mkdir p d s
          for one; do tar -C p -xf "$one"; done
          ls p | grep -v _area | awk 'BEGIN{printf "|%-40s|\n|%-40s|\n", "fname", "char"} {printf " %-40s\n", $1}' >list.tbl
          mImgtbl -t list.tbl p p.tbl; mOverlaps p.tbl pairs.tbl
          awk 'NR==1{print "| cntr1 | cntr2 | stat                      |"} NR==2{print "| int   | int   | char                      |"}
            NR>2{sub(/fits$/,"txt",$5); printf "%8d%8d  %-26s\n",$1,$2,$5}' pairs.tbl >stats.tbl
          awk 'NR>2{print $3, $4, $5}' pairs.tbl | while read -r a b name; do
            mDiffFit -s s/${name%fits}txt p/$a p/$b d/$name "$header"; done
          mConcatFit stats.tbl fits.tbl s; mBgModel -i 100000 p.tbl fits.tbl corrections.tbl
          tar -cf tables.tar p.tbl corrections.tbl
        - planes
      requirements: {ResourceRequirement: {coresMin: 3, ramMin: 768}}
      inputs:
        header: {type: File, inputBinding: {position: 1}}
        projected: {type: "File[]", inputBinding: {position: 2}}
      outputs: {out: {type: File, outputBinding: {glob: tables.tar}}}
    in: {header: header/out, projected: project/out}
    out: [out]
  correct:
    scatter: projected
    run:
      id: correct
      class: CommandLineTool
      baseCommand:
        - sh
        - -ec
        - |
          mkdir p c; tar -C p -xf "$1"; tar -xf "$2"; name=$(ls p | grep -v _area)
          cd p; mBackground -t $name ../c/$name ../p.tbl ../corrections.tbl; cd ../c; tar -cf ../corrected.tar *
        - correct
      requirements: {ResourceRequirement: {coresMin: 3, ramMin: 768}}
      inputs:
        projected: {type: File, inputBinding: {position: 1}}
        tables: {type: File, inputBinding: {position: 2}}
      outputs: {out: {type: File, outputBinding: {glob: corrected.tar}}}
    in: {projected: project/out, tables: planes/out}
    out: [out]
  add:
    run:
      id: add
      class: CommandLineTool
      baseCommand:
        - sh
        - -ec
        - |
          header=$1; shift; mkdir c; for one; do tar -C c -xf "$one"; done
          ls c | grep -v _area | awk 'BEGIN{printf "|%-40s|\n|%-40s|\n", "fname", "char"} {printf " %-40s\n", $1}' >list.tbl
          mImgtbl -t list.tbl c c.tbl; mAdd -p c c.tbl "$header" mosaic.fits
        - add
      requirements: {ResourceRequirement: {coresMin: 4, ramMin: 1024}}
      inputs:
        header: {type: File, inputBinding: {position: 1}}
        corrected: {type: "File[]", inputBinding: {position: 2}}
      outputs: {mosaic: {type: File, outputBinding: {glob: mosaic.fits}}}
    in: {header: header/out, corrected: correct/out}
    out: [mosaic]
  picture:
    run:
      id: picture
      class: CommandLineTool
      baseCommand: [sh, -ec, 'mShrink "$1" small.fits 2; mViewer -ct 1 -gray small.fits -1s max gaussian-log -out mosaic.png', picture]
      requirements: {ResourceRequirement: {coresMin: 5, ramMin: 1280}}
      inputs: {mosaic: {type: File, inputBinding: {position: 1}}}
      outputs: {out: {type: File, outputBinding: {glob: mosaic.png}}}
    in: {mosaic: add/mosaic}
    out: [out]
