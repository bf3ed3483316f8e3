#include "graphsink/preprocess.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "loader/draws.h"

namespace graphsink {
namespace {

// An image as lines of pixels.
struct ImageSize {
  std::int64_t channels = 1, height = 0, width = 0;
  std::size_t pixel = 0;  // bytes

  std::size_t place(std::int64_t channel, std::int64_t line, std::int64_t column) const {
    return pixel * static_cast<std::size_t>((channel * height + line) * width + column);
  }
};

void check_bytes(const char* op, std::size_t seen, const TensorType& type, Where where) {
  if (seen == type.bytes(where)) return;
  throw Error(op, where,
              "expected " + std::to_string(type.bytes(where)) + " bytes for " + to_string(type) + ", seen " +
                  std::to_string(seen),
              "give memory of the size of its type");
}

ImageSize image_size(const char* op, std::size_t bytes, const TensorType& type, Where where) {
  check_bytes(op, bytes, type, where);
  const int rank = type.shape.rank();
  if (rank != 2 && rank != 3) {
    throw Error(op, where, "expected an image [channels, height, width] or [height, width], seen " + to_string(type),
                "give the type of one image, without a dimension for the batch");
  }
  return {rank == 3 ? type.shape[0] : 1, type.shape[-2], type.shape[-1], size_of(type.dtype)};
}

PhiloxWords draw(const char* op, const SampleKey& key, Purpose purpose, Where where) {
  if (key.epoch < 0 || key.sample < 0) {
    throw Error(op, where,
                "expected an epoch and a sample of at least 0, seen " + std::to_string(key.epoch) + " and " +
                    std::to_string(key.sample),
                "give the index of the sample in its source");
  }
  return words_at(key_of(key.seed, key.epoch, purpose), key.sample);
}

std::pair<ImageSize, ImageSize> crop_sizes(const char* op, std::span<const std::byte> from, const TensorType& from_type,
                                           std::span<std::byte> to, const TensorType& to_type, Where where) {
  const ImageSize whole = image_size(op, from.size(), from_type, where),
                  part = image_size(op, to.size(), to_type, where);
  if (from_type.dtype != to_type.dtype || whole.channels != part.channels) {
    throw Error(
        op, where,
        "expected a part of the same dtype and channels as " + to_string(from_type) + ", seen " + to_string(to_type),
        "convert the image before or after");
  }
  return {whole, part};
}

// The columns [begin, end) of the part that lie in the image, of `size` columns from `offset` on; likewise lines.
std::pair<std::int64_t, std::int64_t> overlap(std::int64_t offset, std::int64_t part, std::int64_t whole) {
  const std::int64_t begin = offset < 0 ? (offset < -part ? part : -offset) : 0;
  const std::int64_t left = offset >= whole ? 0 : whole - std::max<std::int64_t>(offset, 0);
  return {begin, std::max(begin, std::min(part, begin + left))};
}

void copy_part(std::span<const std::byte> from, const ImageSize& whole, std::span<std::byte> to, const ImageSize& part,
               std::int64_t top, std::int64_t left) {
  std::fill(to.begin(), to.end(), std::byte{0});
  const auto [first_line, last_line] = overlap(top, part.height, whole.height);
  const auto [first, last] = overlap(left, part.width, whole.width);
  if (first == last) return;
  for (std::int64_t channel = 0; channel < part.channels; ++channel) {
    for (std::int64_t line = first_line; line < last_line; ++line) {
      std::memcpy(to.data() + part.place(channel, line, first),
                  from.data() + whole.place(channel, top + line, left + first),
                  part.pixel * static_cast<std::size_t>(last - first));
    }
  }
}

}  // namespace

void u8_to_f32(std::span<const std::byte> from, std::span<std::byte> to, Where where) {
  check_bytes("u8_to_f32", to.size(), {f32, {static_cast<std::int64_t>(from.size())}}, where);
  for (std::size_t i = 0; i < from.size(); ++i) {
    const float scaled = static_cast<float>(std::to_integer<int>(from[i])) / 255.0f;
    std::memcpy(to.data() + sizeof scaled * i, &scaled, sizeof scaled);
  }
}

void normalize(std::span<std::byte> image, const TensorType& type, std::span<const float> mean,
               std::span<const float> deviation, Where where) {
  auto refuse = [&](const std::string& problem, const std::string& remedy) {
    throw Error("normalize", where, problem, remedy);
  };
  check_bytes("normalize", image.size(), type, where);
  if (type.dtype != f32 || type.shape.rank() == 0) {
    refuse("expected an image f32[channels, ...], seen " + to_string(type), "convert it first, as with u8_to_f32()");
  }
  const auto channels = static_cast<std::size_t>(type.shape[0]);
  auto fits = [&](std::size_t count) { return count == 1 || count == channels; };
  if (!fits(mean.size()) || !fits(deviation.size())) {
    refuse("expected 1 or " + std::to_string(channels) + " means and deviations for " + to_string(type) + ", seen " +
               std::to_string(mean.size()) + " and " + std::to_string(deviation.size()),
           "give one for each channel, or one for all");
  }
  const bool are_finite = std::all_of(mean.begin(), mean.end(), [](float x) { return std::isfinite(x); });
  const bool are_positive =
      std::all_of(deviation.begin(), deviation.end(), [](float x) { return std::isfinite(x) && x > 0; });
  if (!are_finite || !are_positive) refuse("expected finite means, and deviations above 0", "compute them again");
  const std::size_t size = channels == 0 ? 0 : image.size() / sizeof(float) / channels;
  for (std::size_t channel = 0; channel < channels; ++channel) {
    const float center = mean[mean.size() == 1 ? 0 : channel], scale = deviation[deviation.size() == 1 ? 0 : channel];
    for (std::size_t i = channel * size; i < (channel + 1) * size; ++i) {
      float x = 0;
      std::memcpy(&x, image.data() + sizeof x * i, sizeof x);
      x = (x - center) / scale;
      std::memcpy(image.data() + sizeof x * i, &x, sizeof x);
    }
  }
}

void one_hot(std::int64_t label, std::span<std::byte> to, Where where) {
  const auto classes = static_cast<std::int64_t>(to.size() / sizeof(float));
  check_bytes("one_hot", to.size(), {f32, {classes}}, where);
  if (label < 0 || label >= classes) {
    throw Error("one_hot", where,
                "expected a label from 0 to " + std::to_string(classes) + " (exclusive), seen " + std::to_string(label),
                "give memory for as many classes as there are");
  }
  constexpr float kOne = 1;
  std::fill(to.begin(), to.end(), std::byte{0});
  std::memcpy(to.data() + sizeof kOne * static_cast<std::size_t>(label), &kOne, sizeof kOne);
}

void flip_horizontal(std::span<std::byte> image, const TensorType& type, Where where) {
  const ImageSize size = image_size("flip_horizontal", image.size(), type, where);
  for (std::int64_t line = 0; line < size.channels * size.height; ++line) {
    for (std::int64_t left = 0, right = size.width - 1; left < right; ++left, --right) {
      std::swap_ranges(image.data() + size.place(0, line, left), image.data() + size.place(0, line, left) + size.pixel,
                       image.data() + size.place(0, line, right));
    }
  }
}

bool random_flip(std::span<std::byte> image, const TensorType& type, const SampleKey& key, Where where) {
  image_size("random_flip", image.size(), type, where);  // refuses it in either case
  if ((draw("random_flip", key, Purpose::flip, where).at[0] & 1) == 0) return false;
  flip_horizontal(image, type, where);
  return true;
}

void crop(std::span<const std::byte> from, const TensorType& from_type, std::span<std::byte> to,
          const TensorType& to_type, std::int64_t top, std::int64_t left, Where where) {
  const auto [whole, part] = crop_sizes("crop", from, from_type, to, to_type, where);
  copy_part(from, whole, to, part, top, left);
}

void random_crop(std::span<const std::byte> from, const TensorType& from_type, std::span<std::byte> to,
                 const TensorType& to_type, std::int64_t padding, const SampleKey& key, Where where) {
  constexpr std::int64_t kMostPadding = std::int64_t{1} << 31;
  const auto [whole, part] = crop_sizes("random_crop", from, from_type, to, to_type, where);
  if (padding < 0 || padding > kMostPadding) {
    throw Error("random_crop", where, "expected a padding from 0 to 2^31, seen " + std::to_string(padding),
                "give the width of the border in pixels");
  }
  const std::int64_t lines = whole.height + 2 * padding - part.height, columns = whole.width + 2 * padding - part.width;
  if (lines < 0 || columns < 0) {
    throw Error("random_crop", where,
                "expected a part that fits into " + to_string(from_type) + " with a border of " +
                    std::to_string(padding) + ", seen " + to_string(to_type),
                "crop a smaller part, or give more padding");
  }
  const PhiloxWords words = draw("random_crop", key, Purpose::crop, where);
  copy_part(from, whole, to, part, below(words.at[0], words.at[1], lines + 1) - padding,
            below(words.at[2], words.at[3], columns + 1) - padding);
}

}  // namespace graphsink
