// Texts that are compared with files in tests/golden.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>

#include "samples/models/source_dir.h"

namespace graphsink::testing {

// Without the lines of test sources, which move whenever one is edited: they are tested in error_test.cpp.
inline void expect_golden(const std::string& name, const std::string& text) {
  std::string seen = std::regex_replace(text, std::regex("(\\w+\\.(cpp|h)):[0-9]+"), "$1");
  std::string path = std::string(source_dir()) + "/tests/golden/" + name;
  if (std::getenv("GRAPHSINK_UPDATE_GOLDEN")) std::ofstream(path) << seen;
  std::ifstream file(path);
  std::stringstream wanted;
  wanted << file.rdbuf();
  EXPECT_EQ(wanted.str(), seen) << "if intended, run with GRAPHSINK_UPDATE_GOLDEN=1 and read the difference";
}

}  // namespace graphsink::testing
