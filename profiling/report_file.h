// Where a report goes: to a file, for "-" to stdout in place of the table, and for "" nowhere.
#pragma once

#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "checkpoint/file_writer.h"
#include "graphsink/error.h"
#include "samples/cli.h"

namespace graphsink::bench {

// The file is what it was until the whole report replaces it.
class ReportFile {
 public:
  // Before anything is measured. Throws Error if the file cannot be written.
  explicit ReportFile(const std::string& name) : is_stdout_(name == "-") {
    if (!name.empty() && !is_stdout_) file_.emplace(name, Where());
  }

  // `print_table` prints the report for a person. Throws Error if the report did not arrive.
  template <class PrintTable>
  void write(const nlohmann::json& report, const PrintTable& print_table) {
    std::string text = report.dump(2) + "\n";
    if (is_stdout_) {
      std::cout << text;
    } else {
      print_table();
    }
    if (file_) {
      file_->write(text.data(), text.size());
      file_->commit();
    }
    cli::require_printed();
  }

 private:
  bool is_stdout_;
  std::optional<FileWriter> file_;
};

}  // namespace graphsink::bench
