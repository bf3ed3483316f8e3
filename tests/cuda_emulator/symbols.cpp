// The names of this program's functions, from its symbol table. Kernels are mostly local functions, of which the
// dynamic linker knows nothing.
#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

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

std::map<std::uintptr_t, std::string> read_symbols() {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  std::map<std::uintptr_t, std::string> names;
  if (bytes.size() < sizeof(Elf64_Ehdr) || std::memcmp(bytes.data(), ELFMAG, SELFMAG) != 0) return names;
  Elf64_Ehdr header;
  std::memcpy(&header, bytes.data(), sizeof header);
  auto section = [&](std::size_t i) {
    Elf64_Shdr found;
    std::memcpy(&found, bytes.data() + header.e_shoff + i * sizeof found, sizeof found);
    return found;
  };
  for (std::size_t i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr table = section(i);
    if (table.sh_type != SHT_SYMTAB) continue;
    const char* texts = bytes.data() + section(table.sh_link).sh_offset;
    for (std::size_t at = 0; at < table.sh_size; at += sizeof(Elf64_Sym)) {
      Elf64_Sym symbol;
      std::memcpy(&symbol, bytes.data() + table.sh_offset + at, sizeof symbol);
      if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC) names[load_address() + symbol.st_value] = texts + symbol.st_name;
    }
  }
  return names;
}

}  // namespace

const char* symbol_of(const void* function) {
  static const std::map<std::uintptr_t, std::string>& names = *new std::map(read_symbols());  // used until exit
  const auto found = names.find(reinterpret_cast<std::uintptr_t>(function));
  if (found != names.end()) return found->second.c_str();
  Dl_info info;  // of a kernel that was compiled at run time
  return dladdr(function, &info) != 0 ? info.dli_sname : nullptr;
}

}  // namespace emu
