// Every program of graphsink_tests() takes on the locale of its environment, as an application that links the library
// may do: numbers in texts and files must not change with it.
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
      return;  // a name this machine does not know
    }
    std::locale::global(std::locale(""));
    std::cout.imbue(std::locale::classic());  // of GoogleTest and of what tests print
  }
};
[[maybe_unused]] const auto* const environment_locale = ::testing::AddGlobalTestEnvironment(new EnvironmentLocale);

}  // namespace
