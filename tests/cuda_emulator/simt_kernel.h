// What the runtime has to know of a kernel to run it; part of simt.h, and of kernels that are compiled at run time.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

namespace emu {

// Values as the warp operations take them, and back.
template <class T>
unsigned long long to_bits(T value) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  unsigned long long bits = 0;
  __builtin_memcpy(&bits, &value, sizeof(T));
  return bits;
}

template <class T>
T from_bits(unsigned long long bits) {
  T value;
  __builtin_memcpy(&value, &bits, sizeof(T));
  return value;
}

// What a launch needs to know about a kernel and cannot get from its address.
struct KernelSignature {
  unsigned count;
  const unsigned* sizes;
  void (*invoke)(const void* function, void** arguments);
  // Sets the bytes between the members of structures to zero; null where the compiler cannot.
  void (*clear_padding)(void** arguments);
};

#if defined(__has_builtin)
#if __has_builtin(__builtin_clear_padding)
#define EMU_CLEARS_PADDING 1
#endif
#endif

template <class... P>
struct KernelOf {
  static_assert((std::is_trivially_copyable_v<P> && ...), "kernel parameters are copied as bytes");
  static_assert((!std::is_reference_v<P> && ...), "a kernel cannot take references");
  static_assert((sizeof(P) + ... + 0) <= 4096, "kernel parameters are limited to 4096 bytes");
  static constexpr unsigned kSizes[sizeof...(P) + 1] = {static_cast<unsigned>(sizeof(P))..., 0};

  template <std::size_t... I>
  static void call(void (*function)(P...), [[maybe_unused]] void** arguments, std::index_sequence<I...>) {
    function(*static_cast<P*>(arguments[I])...);
  }
  static void invoke(const void* function, void** arguments) {
    call(reinterpret_cast<void (*)(P...)>(const_cast<void*>(function)), arguments, std::index_sequence_for<P...>());
  }

#if defined(EMU_CLEARS_PADDING)
  template <std::size_t... I>
  static void clear([[maybe_unused]] void** arguments, std::index_sequence<I...>) {
    (__builtin_clear_padding(static_cast<std::remove_const_t<P>*>(arguments[I])), ...);
  }
  static void clear_padding(void** arguments) { clear(arguments, std::index_sequence_for<P...>()); }
#else
  static constexpr void (*clear_padding)(void**) = nullptr;
#endif
};

template <class... P>
KernelSignature signature_of(void (*)(P...)) {
  return {sizeof...(P), KernelOf<P...>::kSizes, &KernelOf<P...>::invoke, KernelOf<P...>::clear_padding};
}

}  // namespace emu
