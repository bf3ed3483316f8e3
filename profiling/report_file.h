// Where a report goes: to a file, for "-" to stdout in place of the table, and for "" nowhere.
#pragma once

#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "graphsink/error.h"

namespace graphsink::bench {

class ReportFile {
 public:
  // Before anything is measured. Throws Error if the file cannot be written.
  explicit ReportFile(const std::string& name) : is_stdout_(name == "-") {
    if (name.empty() || is_stdout_) return;
    file_.open(name);
    if (!file_) throw Error(name, Where(), "cannot be written", "name a file in an existing directory");
  }

  // `print_table` prints the report for a person.
  template <class PrintTable>
  void write(const nlohmann::json& report, const PrintTable& print_table) {
    if (is_stdout_) {
      std::cout << report.dump(2) << "\n";
      return;
    }
    print_table();
    if (file_.is_open()) file_ << report.dump(2) << "\n";
  }

 private:
  bool is_stdout_;
  std::ofstream file_;
};

}  // namespace graphsink::bench
