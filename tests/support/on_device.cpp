// Once for each program, however many of its files have tests of the fixture: each instance would run them all again.
#include "program_fixture.h"

namespace graphsink::testing {

INSTANTIATE_TEST_SUITE_P(Devices, OnDevice, ::testing::ValuesIn(devices()), device_name);

}  // namespace graphsink::testing
