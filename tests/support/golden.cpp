#include "golden.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <regex>
#include <sstream>

#include "samples/models/source_dir.h"

namespace graphsink::testing {

void expect_golden(const std::string& name, const std::string& text) {
  std::string seen = std::regex_replace(text, std::regex("(\\w+\\.(cpp|h)):[0-9]+"), "$1");
  std::string path = std::string(source_dir()) + "/tests/golden/" + name;
  if (std::getenv("GRAPHSINK_UPDATE_GOLDEN")) std::ofstream(path) << seen;
  std::ifstream file(path);
  std::stringstream wanted;
  wanted << file.rdbuf();
  EXPECT_EQ(wanted.str(), seen) << "if intended, run with GRAPHSINK_UPDATE_GOLDEN=1 and read the difference";
}

}  // namespace graphsink::testing
