version 1.0

# Words of each file are counted in a job of its own; the counts are added up.
workflow words {
  input {
    Array[File] texts
  }
  scatter (text in texts) {
    call count { input: text = text }
  }
  call add { input: counts = count.out }
  output {
    File total = add.out
  }
}

task count {
  input {
    File text
  }
  command <<<
    tr -cs A-Za-z '\n' <~{text} | LC_ALL=C sort | uniq -c >counts.txt
  >>>
  output {
    File out = "counts.txt"
  }
  runtime {
    cpu: 1
    memory: "256 MB"
    docker: "local"
  }
}

task add {
  input {
    Array[File] counts
  }
  command <<<
    cat ~{sep=" " counts} | awk '{ n[$2] += $1 } END { for (word in n) print n[word], word }' | LC_ALL=C sort -k1,1nr -k2,2 >total.txt
  >>>
  output {
    File out = "total.txt"
  }
  runtime {
    cpu: 2
    memory: "512 MB"
    docker: "local"
  }
}
