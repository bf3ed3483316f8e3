// Where the time of a workload goes: what each op takes, against what the machine can do.
#pragma once

#include <nlohmann/json.hpp>
#include <ostream>

#include "samples/models/model.h"

namespace graphsink::bench {

// The rates of a product of two f32 matrices and of an addition of two long f32 vectors: {"gflops": ..., "gbytes":
// ...}. With `is_test_size` both are small. Throws Error if the device cannot run them.
nlohmann::json measure_machine(DeviceId device, int threads, bool is_test_size);

// Trains the model for a few steps of warm-up, then measures each op over `steps` steps. Ops of one name, line and
// result are one row; the rows are sorted by time. Throws Error if the model cannot be measured.
nlohmann::json profile_of(models::Model model, DeviceId device, int threads, std::int64_t steps);

// `machine`: of measure_machine().
void print_profile(std::ostream& out, const nlohmann::json& profile, const nlohmann::json& machine);

}  // namespace graphsink::bench
