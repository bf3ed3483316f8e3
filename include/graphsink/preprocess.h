// Preparing samples on the host: pure functions on the bytes of one sample, for any number of threads at once. Images
// are row-major [channels, height, width], as conv2d() takes them, or [height, width]; memory may have any alignment.
// All throw Error for memory whose size is not that of its type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "graphsink/error.h"
#include "graphsink/type.h"
#include "graphsink/version.h"

namespace GRAPHSINK_PUBLIC graphsink {

// The numbers that random choices for a sample depend on, and nothing else: a sample is prepared in the same way by any
// thread, and again when a run is resumed, but in another way in the next epoch.
struct SampleKey {
  std::uint64_t seed = 0;   // seed of the run: that of LoaderOptions in a Prepare
  std::int64_t epoch = 0;   // at least 0
  std::int64_t sample = 0;  // its index in the Source, at least 0
};

// Bytes u8 as f32 in [0, 1]: each divided by 255. `to` has four times as many bytes.
void u8_to_f32(std::span<const std::byte> from, std::span<std::byte> to, Where where = Where::current());

// Replaces each x of channel c in an f32 image [channels, ...] by (x - mean[c]) / deviation[c]. `mean` and `deviation`
// have one number for each channel, or one for all. Throws Error for another number of them, a deviation that is not
// above 0, and numbers that are not finite.
void normalize(std::span<std::byte> image, const TensorType& type, std::span<const float> mean,
               std::span<const float> deviation, Where where = Where::current());

// f32 zeros with a 1 at `label`. Throws Error unless 0 <= label < to.size() / 4.
void one_hot(std::int64_t label, std::span<std::byte> to, Where where = Where::current());

// Mirrors each line of an image of any dtype.
void flip_horizontal(std::span<std::byte> image, const TensorType& type, Where where = Where::current());
// The same for every other image, by chance. Returns whether it was mirrored.
bool random_flip(std::span<std::byte> image, const TensorType& type, const SampleKey& key,
                 Where where = Where::current());

// Copies the part of an image that begins at line `top` and column `left`, both of which may be negative; what lies
// outside of the image is zeros. `to` does not overlap `from`, and its type has the same dtype and channels. Throws
// Error for others.
void crop(std::span<const std::byte> from, const TensorType& from_type, std::span<std::byte> to,
          const TensorType& to_type, std::int64_t top, std::int64_t left, Where where = Where::current());
// The same with a place drawn at random, each with the same probability, from those where the part lies within the
// image and a border of `padding` zeros around it. Throws Error if there is none, and for a padding below 0 or above
// 2^31.
void random_crop(std::span<const std::byte> from, const TensorType& from_type, std::span<std::byte> to,
                 const TensorType& to_type, std::int64_t padding, const SampleKey& key, Where where = Where::current());

}  // namespace graphsink
