// Sorts lines that are too long for one block: their elements are packed into numbers, which radix_sort() sorts.
#pragma once

#include <bit>

#include "kernels/support/cub.h"
#include "kernels/support/dtype.h"
#include "kernels/support/lines.h"

namespace graphsink {

// A number that orders like x, in the low bits, as many as T has. A NaN is the largest of all, all NaNs are equal, and
// so are 0 and -0.
template <class T>
HD std::uint64_t ordered_bits(T x) {
  constexpr std::uint64_t kSign = std::uint64_t{1} << (8 * sizeof(T) - 1), kAll = kSign | (kSign - 1);
  if constexpr (std::is_unsigned_v<T>) {
    return x;
  } else if constexpr (std::is_integral_v<T>) {
    return (static_cast<std::uint64_t>(x) & kAll) ^ kSign;
  } else {
    auto number = static_cast<Wide<T>>(x);
    if (number != number) return kAll;
    if (number == Wide<T>(0)) return kSign;
    using Bits = std::conditional_t<sizeof(T) == 2, std::uint16_t,
                                    std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>;
    std::uint64_t bits = std::bit_cast<Bits>(x);
    return bits & kSign ? ~bits & kAll : bits | kSign;
  }
}

// The item of an element has, from the highest bits to the lowest, the number of its line, its ordered_bits(), and its
// place in the line. So one sort sorts all lines, few or many. cub::DeviceSegmentedRadixSort would give each line to
// one block, which is slow for few long lines, and a call for each line would be too many kernels for many lines.
struct LongLines {
  Lines lines;
  bool descends = false;
  int key_bits = 0, place_bits = 0;
  RadixSort sort;  // by line and element: the items are in the order of places before, and equal elements stay so
  HD std::int64_t items() const { return lines.count() * lines.length; }

  template <class Item, class T>
  HD Item pack(std::int64_t line, T x, std::int64_t place) const {
    std::uint64_t key = ordered_bits(x);
    if (descends) key ^= ~std::uint64_t{0} >> (64 - key_bits);
    return static_cast<Item>(line) << (key_bits + place_bits) | static_cast<Item>(key) << place_bits |
           static_cast<Item>(place);
  }
  template <class Item>
  HD std::int32_t place(Item item) const {
    return static_cast<std::int32_t>(item & ((Item{1} << place_bits) - 1));
  }
};

template <class T, class Item>
__global__ void pack_lines(const T* x, Item* items, LongLines plan) {
  wait_for_inputs();
  const Lines& lines = plan.lines;
  for (std::int64_t i = thread_index(); i < plan.items(); i += all_threads()) {
    std::int64_t above = quotient(i, lines.inner), outer = quotient(above, lines.length);
    std::int64_t line = outer * lines.inner + (i - above * lines.inner), place = above - outer * lines.length;
    items[line * lines.length + place] = plan.pack<Item>(line, x[i], place);
  }
}

// Stores the first `selected.length` elements of each sorted line. An element is read from x, so its bits stay, those
// of a NaN included.
template <class T, class Item>
__global__ void store_sorted(const T* x, const Item* items, T* values, std::int32_t* places, LongLines plan,
                             Lines selected) {
  wait_for_inputs();
  const Lines& lines = plan.lines;
  std::int64_t size = selected.count() * selected.length;
  for (std::int64_t i = thread_index(); i < size; i += all_threads()) {
    std::int64_t above = quotient(i, selected.inner), outer = quotient(above, selected.length);
    std::int64_t line = outer * lines.inner + (i - above * lines.inner);
    std::int32_t place = plan.place(items[line * lines.length + (above - outer * selected.length)]);
    values[i] = x[lines.first(line) + place * lines.inner];
    places[i] = place;
  }
}

// Calls body.operator()<Item>() with the type of the items. Elements of up to 32 bits nearly always fit into 64 bits.
template <class T, class Body>
void for_item(const LongLines& plan, const Body& body) {
  if constexpr (sizeof(T) < sizeof(std::uint64_t))
    if (plan.sort.end_bit <= 64) return body.template operator()<std::uint64_t>();
  body.template operator()<__uint128_t>();
}

// For prepare() of an op whose CUDA body calls sort_long_lines<T>(). The tensor must not be empty.
template <class T>
Prepared prepare_long_lines(const PrepareArgs& p, const Lines& lines, bool descends) {
  auto width = [](std::int64_t count) {
    return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(count) - 1));
  };
  auto plan = std::make_shared<LongLines>();
  plan->lines = lines;
  plan->descends = descends;
  plan->key_bits = 8 * static_cast<int>(sizeof(T));
  plan->place_bits = width(lines.length);
  plan->sort.items = plan->items();
  plan->sort.first_bit = plan->place_bits;
  plan->sort.end_bit = plan->place_bits + plan->key_bits + width(lines.count());
  std::size_t workspace = 0;
  for_item<T>(*plan, [&]<class Item>() {
    load_kernels<pack_lines<T, Item>, store_sorted<T, Item>>(p);
    workspace = prepare_radix_sort<Item>(p, plan->sort);
  });
  return {plan, workspace};
}

// Sorts the lines of input 0. Output 0 is the first `count` elements of each sorted line, output 1 their places.
template <class T>
void sort_long_lines(CudaArgs& a, std::int64_t count) {
  const auto& plan = a.local<LongLines>();
  Lines selected = plan.lines;
  selected.length = count;
  for_item<T>(plan, [&]<class Item>() {
    auto* items = static_cast<Item*>(a.workspace());
    a.launch(pack_lines<T, Item>, launch_size(plan.items()), a.in<T>(0), items, plan);
    const Item* sorted = radix_sort<Item>(a, plan.sort, items);
    a.launch(store_sorted<T, Item>, launch_size(selected.count() * count), a.in<T>(0), sorted, a.out<T>(0),
             a.out<std::int32_t>(1), plan, selected);
  });
}

}  // namespace graphsink
