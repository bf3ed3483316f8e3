// The name by which other projects include emulator.h. The package installs emulator.h itself in this place.
#pragma once

#include "../../emulator.h"
