// Rows of the benchmark as JSON and as a table.
#pragma once

#include <nlohmann/json.hpp>
#include <ostream>

#include "profiling/trial.h"

namespace graphsink::bench {

// The row of a finished trial; fields that do not apply are null.
nlohmann::json row_of(Trial& trial);

void print_table(std::ostream& out, const nlohmann::json& report);

}  // namespace graphsink::bench
