#pragma once

namespace graphsink::testing {

// Launches a kernel that ends with an error, after which the device answers nothing to this process.
void launch_trap();

}  // namespace graphsink::testing
