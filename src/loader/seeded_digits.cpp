#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <random>
#include <span>

#include "base/at.h"
#include "graphsink/loader.h"

namespace graphsink {
namespace {

constexpr int kSide = 28;
constexpr std::int64_t kMaxCount = 1'000'000;

// Segments a to g of a seven-segment display, as corners of a 2 x 3 grid: 0 1 / 2 3 / 4 5.
struct Segment {
  int from;
  int to;
};
constexpr std::array<Segment, 7> kSegments = {{{0, 1}, {1, 3}, {3, 5}, {4, 5}, {2, 4}, {0, 2}, {2, 3}}};
// Bit i: segment i is lit.
constexpr std::array<unsigned, 10> kLit = {0x3f, 0x06, 0x5b, 0x4f, 0x66, 0x6d, 0x7d, 0x07, 0x7f, 0x6f};

struct Point {
  float x;
  float y;
};

// Only operations that IEEE 754 rounds exactly, and no std:: distribution (their algorithms differ between libraries):
// the same seed gives the same bits everywhere.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  float uniform(float low, float high) { return low + (high - low) * (static_cast<float>(engine_() >> 40) * 0x1p-24f); }
  std::int32_t below(std::uint64_t n) { return static_cast<std::int32_t>(engine_() % n); }

 private:
  std::mt19937_64 engine_;
};

float distance(Point p, Point a, Point b) {
  float dx = b.x - a.x, dy = b.y - a.y;
  float along = ((p.x - a.x) * dx + (p.y - a.y) * dy) / (dx * dx + dy * dy);
  along = std::clamp(along, 0.0f, 1.0f);
  float ex = p.x - (a.x + along * dx), ey = p.y - (a.y + along * dy);
  return std::sqrt(ex * ex + ey * ey);
}

void draw_segment(std::span<float> image, Point a, Point b, float half_width) {
  for (int y = 0; y < kSide; ++y) {
    for (int x = 0; x < kSide; ++x) {
      float ink = half_width + 0.5f - distance({static_cast<float>(x), static_cast<float>(y)}, a, b);
      float& pixel = image[at(y * kSide + x)];
      pixel = std::max(pixel, std::clamp(ink, 0.0f, 1.0f));
    }
  }
}

void draw(std::span<float> image, std::int32_t digit, Random& random) {
  float left = 8.0f + random.uniform(-1.5f, 1.5f), top = 4.5f + random.uniform(-1.5f, 1.5f);
  float width = random.uniform(9.0f, 12.0f), height = random.uniform(16.0f, 19.0f);
  float slant = random.uniform(-1.5f, 1.5f);
  std::array<Point, 6> corners;
  for (int i = 0; i < 6; ++i) {
    int line = i / 2;
    auto row = static_cast<float>(line), column = static_cast<float>(i % 2);
    corners[at(i)] = {left + column * width + (1.0f - row) * slant + random.uniform(-1.0f, 1.0f),
                      top + row * 0.5f * height + random.uniform(-1.0f, 1.0f)};
  }
  for (std::size_t s = 0; s < kSegments.size(); ++s) {
    float half_width = random.uniform(0.7f, 1.6f);
    if ((kLit[at(digit)] >> s & 1) == 0) continue;
    draw_segment(image, corners[at(kSegments[s].from)], corners[at(kSegments[s].to)], half_width);
  }
  float contrast = random.uniform(0.6f, 1.0f);
  for (float& pixel : image) {
    float noisy = std::clamp(pixel * contrast + random.uniform(-0.2f, 0.2f), 0.0f, 1.0f);
    pixel = std::floor(noisy * 255.0f) / 255.0f;
  }
}

}  // namespace

Digits seeded_digits(std::int64_t count, std::uint64_t seed) {
  if (count < 1 || count > kMaxCount) {
    throw Error("seeded_digits", Where(),
                "expected a count from 1 to " + std::to_string(kMaxCount) + ", seen " + std::to_string(count),
                "ask for fewer digits, at least one");
  }
  Digits digits{Tensor(f32, {count, kSide * kSide}), Tensor(i32, {count}), "seeded digits"};
  Random random(seed);
  std::span<float> images = digits.images.as<float>();
  for (std::int32_t& label : digits.labels.as<std::int32_t>()) {
    label = random.below(10);
    draw(images.first(kSide * kSide), label, random);
    images = images.subspan(kSide * kSide);
  }
  return digits;
}

}  // namespace graphsink
