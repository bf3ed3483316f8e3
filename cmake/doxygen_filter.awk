# Shows doxygen the comments of the public headers, which are plain ones: a block in front of a declaration and a comment
# behind one belong to that declaration; the first block, and each with an empty line behind it, to the file. One line alone,
# with an empty line behind it, is a heading for those who read the header. Texts are taken as they are, without markup; lines
# that are indented are code. "@{" and "@}", alone on their lines, enclose declarations that share the comment behind "@{".

function text(comment) {
  gsub(/[\\@<>#%]/, "\\\\&", comment)
  return comment
}

function add(line) {
  block = block line "\n"
  ++lines
}

# Prints the block of comments that ends in front of the line at hand.
function end_block(is_of_file) {
  if (in_code) add("/// @endcode")
  if (!is_of_file) printf "%s", block
  else if (lines > 1) printf "/// @file\n%s", block
  block = ""
  in_code = lines = 0
}

{ start = match($0, /\/\//) }

start == 0 || /^[ \t]*#/ || /^}/ || /\/\/ NOLINT/ || /"[^"]*\/\/[^"]*"/ {
  end_block(!/[^ \t]/)
  print
  behind = 0
  next
}

NR == 1 { add("/// @file") }

/^[ \t]*\/\// && behind == start { # what stands behind a declaration goes on below it, in the same column
  print substr($0, 1, start - 1) "///<" text(substr($0, start + 2))
  next
}

/^[ \t]*\/\/ @[{}]$/ { # a block of its own, so that the one behind it belongs to the declaration
  end_block(0)
  print substr($0, 1, start - 1) "/**" substr($0, start + 2) " */"
  next
}

/^[ \t]*\/\/   / {
  if (!in_code) add("/// @code{.cpp}")
  add("///" substr($0, start + 2))
  in_code = 1
  next
}

/^[ \t]*\/\// {
  if (in_code) add("/// @endcode")
  add("///" text(substr($0, start + 2)))
  in_code = 0
  next
}

{
  end_block(0)
  print substr($0, 1, start - 1) "///<" text(substr($0, start + 2))
  behind = start
}
