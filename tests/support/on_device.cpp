// Instantiates the fixture once for each program. An instance in each source file would run all tests again.
#include "program_fixture.h"

namespace graphsink::testing {

INSTANTIATE_TEST_SUITE_P(Devices, OnDevice, ::testing::ValuesIn(devices()), device_name);

}  // namespace graphsink::testing
