// Tells when a cache of captures is of little use.
#pragma once

namespace graphsink {

// Looks at calls in windows. A call is of use if it launches what an earlier call captured.
class UseOfKeys {
 public:
  static constexpr int kWindow = 32;
  // Shapes that are all new in their first round of an epoch are not yet a sign.
  static constexpr int kWindowsOfNewKeys = 4;

  enum class Verdict : unsigned char { none, keys_are_dropped, keys_do_not_return };

  void key_is_new() { ++added_; }
  void captured_key_is_dropped() { ++dropped_; }
  void call_is_of_use() { ++of_use_; }
  // Ends the count of one call. At the end of a window the verdict may be another one than none.
  Verdict end_call() {
    if (++calls_ < kWindow) return Verdict::none;
    const bool is_dropping = dropped_ >= kWindow / 4 && of_use_ < kWindow / 2;
    windows_of_new_keys_ = added_ == kWindow && of_use_ == 0 ? windows_of_new_keys_ + 1 : 0;
    calls_ = added_ = dropped_ = of_use_ = 0;
    if (windows_of_new_keys_ >= kWindowsOfNewKeys) return Verdict::keys_do_not_return;
    // Where all keys are new, a larger bound would not help.
    return is_dropping && windows_of_new_keys_ == 0 ? Verdict::keys_are_dropped : Verdict::none;
  }

 private:
  int calls_ = 0, added_ = 0, dropped_ = 0, of_use_ = 0;
  int windows_of_new_keys_ = 0;
};

}  // namespace graphsink
