# Shows doxygen the comments of the public headers, which are plain ones: a block in front of a declaration and a comment
# behind one belong to that declaration, the first block to the file. Texts are taken as they are, without markup; lines
# that are indented are code. "@{" and "@}", alone on their lines, enclose declarations that share the comment behind "@{".

function text(comment) {
  gsub(/[\\@<>#%]/, "\\\\&", comment)
  return comment
}

function end_code() {
  if (in_code) print "/// @endcode"
  in_code = 0
}

{ start = match($0, /\/\//) }

start == 0 || /^[ \t]*#/ || /^}/ || /\/\/ NOLINT/ || /"[^"]*\/\/[^"]*"/ {
  end_code()
  print
  behind = 0
  next
}

NR == 1 { print "/// @file" }

/^[ \t]*\/\// && behind == start { # what stands behind a declaration goes on below it, in the same column
  print substr($0, 1, start - 1) "///<" text(substr($0, start + 2))
  next
}

/^[ \t]*\/\/ @[{}]$/ { # a block of its own, so that the one behind it belongs to the declaration
  end_code()
  print substr($0, 1, start - 1) "/**" substr($0, start + 2) " */"
  next
}

/^[ \t]*\/\/   / {
  if (!in_code) print "/// @code{.cpp}"
  in_code = 1
  print "///" substr($0, start + 2)
  next
}

/^[ \t]*\/\// {
  end_code()
  print "///" text(substr($0, start + 2))
  next
}

{
  end_code()
  print substr($0, 1, start - 1) "///<" text(substr($0, start + 2))
  behind = start
}
