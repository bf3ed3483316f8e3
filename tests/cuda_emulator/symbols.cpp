// The names of this program's functions, from its symbol table. Kernels are mostly local functions, of which the
// dynamic linker knows nothing.
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime.h"

namespace emu {
namespace {

// Where the program was loaded: what its symbols' values are relative to.
std::uintptr_t load_address() {
  std::uintptr_t address = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        *static_cast<std::uintptr_t*>(data) = info->dlpi_addr;  // the program comes first
        return 1;
      },
      &address);
  return address;
}

// A file in memory, until the process ends; empty if it cannot be read.
std::string_view mapped(const char* path) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  struct stat status;
  void* bytes = MAP_FAILED;
  if (fstat(file, &status) == 0)
    bytes = mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ, MAP_PRIVATE, file, 0);
  close(file);
  if (bytes == MAP_FAILED) return {};
  return {static_cast<const char*>(bytes), static_cast<std::size_t>(status.st_size)};
}

using Symbol = std::pair<std::uintptr_t, const char*>;

// By address. A program of a sanitizer has 250 MB: its names stay where they are.
std::vector<Symbol> read_symbols() {
  std::vector<Symbol> symbols;
  const std::string_view bytes = mapped("/proc/self/exe");
  if (bytes.size() < sizeof(Elf64_Ehdr) || std::memcmp(bytes.data(), ELFMAG, SELFMAG) != 0) return symbols;
  Elf64_Ehdr header;
  std::memcpy(&header, bytes.data(), sizeof header);
  auto section = [&](std::size_t i) {
    Elf64_Shdr found;
    std::memcpy(&found, bytes.data() + header.e_shoff + i * sizeof found, sizeof found);
    return found;
  };
  const std::uintptr_t loaded_at = load_address();
  for (std::size_t i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr table = section(i);
    if (table.sh_type != SHT_SYMTAB) continue;
    const char* texts = bytes.data() + section(table.sh_link).sh_offset;
    for (std::size_t at = 0; at < table.sh_size; at += sizeof(Elf64_Sym)) {
      Elf64_Sym symbol;
      std::memcpy(&symbol, bytes.data() + table.sh_offset + at, sizeof symbol);
      if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC)
        symbols.emplace_back(loaded_at + symbol.st_value, texts + symbol.st_name);
    }
  }
  // Stable, because the last name in the table of a function with several is the one that symbol_of() returns.
  std::stable_sort(symbols.begin(), symbols.end(), [](const Symbol& a, const Symbol& b) { return a.first < b.first; });
  return symbols;
}

}  // namespace

const char* symbol_of(const void* function) {
  static const std::vector<Symbol>& symbols = *new std::vector(read_symbols());  // used until exit
  const auto address = reinterpret_cast<std::uintptr_t>(function);
  auto behind = std::upper_bound(symbols.begin(), symbols.end(), address,
                                 [](std::uintptr_t wanted, const Symbol& symbol) { return wanted < symbol.first; });
  if (behind != symbols.begin() && std::prev(behind)->first == address) return std::prev(behind)->second;
  Dl_info info;  // of a kernel that was compiled at run time
  return dladdr(function, &info) != 0 ? info.dli_sname : nullptr;
}

}  // namespace emu
