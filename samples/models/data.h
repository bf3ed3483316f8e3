// Where training data come from: a named directory, else $GRAPHSINK_DATA, else ../shared/data beside the sources, else
// what the repository itself has.
#pragma once

#include <memory>
#include <string>

#include "graphsink/graphsink.h"

namespace graphsink::models {

// Which data a result came from: a file and the checksum of its bytes, or made-up data and that of their elements.
struct Source {
  std::string name;
  std::string checksum;
};

struct DigitData {
  std::shared_ptr<const Digits> digits;
  Source source;
  bool is_real = true;
};
struct TextData {
  std::shared_ptr<const Text> text;
  Source source;
};

// Digits from `directory`. Where none is named and none is found, seeded digits. Throws Error naming the file if a
// named directory lacks them, or if any file is bad.
DigitData find_digits(const std::string& directory);

// `file`; if empty, tinyshakespeare.txt or the first .txt file of the directory; if there is none, the LICENSE of the
// repository. Throws Error naming the file or directory if it cannot be read.
TextData find_text(const std::string& directory, const std::string& file = "");

}  // namespace graphsink::models
