// Every program of graphsink_tests() adopts the locale of its environment, as an application that links the library may
// do. Numbers in texts and files must not change with it.
#include <gtest/gtest.h>

#include <clocale>
#include <cstdlib>
#include <iostream>
#include <locale>

namespace {

class EnvironmentLocale : public ::testing::Environment {
 public:
  void SetUp() override {
    if (!std::setlocale(LC_ALL, "")) {
      ASSERT_EQ(std::getenv("LOCPATH"), nullptr) << "the locale that LOCPATH should have is not there";
      return;  // the machine does not have this locale
    }
    std::locale::global(std::locale(""));
    std::cout.imbue(std::locale::classic());  // for the output of GoogleTest and of the tests
  }
};
[[maybe_unused]] const auto* const environment_locale = ::testing::AddGlobalTestEnvironment(new EnvironmentLocale);

}  // namespace
