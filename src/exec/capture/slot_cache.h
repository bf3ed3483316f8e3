// A cache of slots, bounded in bytes and number, that drops the least recently used ones. A signature selects a slot:
// for a Program the shapes of its inputs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace graphsink {

// A Slot has a member bytes(), which may grow while it is in the cache. A Signature has operator<. Used by one thread
// at a time.
template <class Signature, class Slot>
class SlotCache {
 public:
  explicit SlotCache(std::size_t most_bytes, std::size_t most_slots = std::numeric_limits<std::size_t>::max())
      : most_bytes_(most_bytes), most_slots_(most_slots) {}

  // Returns the slot, which is now the most recently used one, or null if there is none.
  Slot* find(const Signature& signature) {
    auto found = numbers_.find(signature);
    return found == numbers_.end() ? nullptr : use(places_[found->second]);
  }

  // The number that the next slot will have: the smallest that no slot in the cache has.
  std::size_t next_number() const {
    auto free = std::find_if(places_.begin(), places_.end(), [](const Place& place) { return !place.slot; });
    return static_cast<std::size_t>(free - places_.begin());
  }
  // Adds a slot, which is now the most recently used one. Precondition: there is none with this signature.
  Slot& add(Signature signature, std::unique_ptr<Slot> slot) {
    std::size_t number = next_number();
    if (number == places_.size()) places_.emplace_back();
    auto at = numbers_.emplace(std::move(signature), number).first;
    places_[number] = {std::move(slot), at, 0};
    return *use(places_[number]);
  }
  // Null if no slot has that number now.
  Slot* numbered(std::size_t number) const { return number < places_.size() ? places_[number].slot.get() : nullptr; }

  // Destroys slots, the least recently used first, until the others fit into the cache. Slots for which `is_busy` holds
  // are never destroyed, even if they do not fit. Returns the number of slots destroyed.
  template <class IsBusy>
  std::size_t trim(const IsBusy& is_busy) {
    return trim(is_busy, [](Slot&) {});
  }
  // The same; calls last(slot) before a slot is destroyed.
  template <class IsBusy, class Last>
  std::size_t trim(const IsBusy& is_busy, const Last& last) {
    return trim(is_busy, last, most_bytes_, most_slots_);
  }
  // The same for a number of slots that somebody else has chosen, whatever they take.
  template <class IsBusy, class Last>
  std::size_t trim_to(std::size_t most_slots, const IsBusy& is_busy, const Last& last) {
    return trim(is_busy, last, std::numeric_limits<std::size_t>::max(), most_slots);
  }
  // How many slots fit into the cache, those that were used last; one at least.
  std::size_t fitting() const {
    std::vector<const Place*> newest_first;
    for (const Place& place : places_)
      if (place.slot) newest_first.push_back(&place);
    std::sort(newest_first.begin(), newest_first.end(),
              [](const Place* a, const Place* b) { return a->used > b->used; });
    std::size_t count = 0, bytes = 0;
    for (const Place* place : newest_first) {
      bytes += place->slot->bytes();
      if (bytes > most_bytes_ || count == most_slots_) break;
      ++count;
    }
    return std::max<std::size_t>(count, 1);
  }
  // Destroys all slots for which `is_busy` does not hold.
  template <class IsBusy>
  std::size_t clear(const IsBusy& is_busy) {
    return trim(
        is_busy, [](Slot&) {}, 0, 0);
  }

  // The least recently used slot for which `is_wanted` holds; null if there is none.
  template <class IsWanted>
  Slot* oldest(const IsWanted& is_wanted) const {
    const Place* oldest = nullptr;
    for (const Place& place : places_) {
      if (place.slot && (!oldest || place.used < oldest->used) && is_wanted(*place.slot)) oldest = &place;
    }
    return oldest ? oldest->slot.get() : nullptr;
  }
  // Destroys a slot of the cache.
  void drop(const Slot& slot) {
    auto place = std::find_if(places_.begin(), places_.end(), [&](const Place& p) { return p.slot.get() == &slot; });
    destroy(*place);
    ++evicted_;
  }
  template <class Visit>
  void for_each(const Visit& visit) const {
    for (const Place& place : places_) {
      if (place.slot) visit(*place.slot);
    }
  }

  std::size_t most_bytes() const { return most_bytes_; }
  void set_most_bytes(std::size_t bytes) { most_bytes_ = bytes; }
  std::size_t most_slots() const { return most_slots_; }
  std::size_t size() const { return numbers_.size(); }
  std::size_t bytes() const {
    std::size_t sum = 0;
    for (const Place& place : places_) sum += place.slot ? place.slot->bytes() : 0;
    return sum;
  }
  bool is_within_limits() const { return bytes() <= most_bytes_ && size() <= most_slots_; }
  std::uint64_t evicted() const { return evicted_; }  // by trim(), clear() and drop(), so far

 private:
  struct Place {
    std::unique_ptr<Slot> slot;  // null: the number is free
    typename std::map<Signature, std::size_t>::iterator signature;
    std::uint64_t used = 0;  // the number of the last use, in order of time
  };

  Slot* use(Place& place) {
    place.used = ++uses_;
    return place.slot.get();
  }

  void destroy(Place& place) {
    numbers_.erase(place.signature);
    place.slot.reset();
  }

  template <class IsBusy, class Last>
  std::size_t trim(const IsBusy& is_busy, const Last& last, std::size_t most_bytes, std::size_t most_slots) {
    std::size_t left = bytes(), count = 0;
    auto fits = [&] { return left <= most_bytes && size() <= most_slots; };
    if (fits()) return 0;
    std::vector<Place*> oldest_first;
    for (Place& place : places_)
      if (place.slot && !is_busy(*place.slot)) oldest_first.push_back(&place);
    std::sort(oldest_first.begin(), oldest_first.end(), [](Place* a, Place* b) { return a->used < b->used; });
    for (Place* place : oldest_first) {
      if (fits()) break;
      left -= place->slot->bytes();
      last(*place->slot);
      destroy(*place);
      ++count;
    }
    evicted_ += count;
    return count;
  }

  std::size_t most_bytes_, most_slots_;
  std::vector<Place> places_;  // by number
  std::map<Signature, std::size_t> numbers_;
  std::uint64_t uses_ = 0, evicted_ = 0;
};

}  // namespace graphsink
