#pragma once

#include "images/decode.h"

namespace graphsink {

// The image scaled to another size, each axis for itself, with a triangle as filter: it interpolates linearly where the
// image grows, and is as wide as two pixels of the result where it shrinks, so that all pixels count (antialiasing).
DecodedImage resized(const DecodedImage& image, std::size_t height, std::size_t width);

}  // namespace graphsink
