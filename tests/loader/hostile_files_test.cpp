// Files made to do harm: each is refused with an Error that names it. Together with fuzz_readers.cpp.
#include <gtest/gtest.h>

#include <algorithm>

#include "graphsink/loader.h"
#include "graphsink/source.h"
#include "memory_of_refusal.h"
#include "reader_samples.h"
#include "resident_bytes.h"

namespace graphsink::hostile_files_test {
namespace {

struct Hostile {
  std::string name;
  std::string bytes;
  std::string says;  // part of the message
};

// One tensor, with the text of its entry.
std::string one(const std::string& entry, const std::string& data = "abcdefgh") {
  return safetensors_file("{\"w\":" + entry + "}", data);
}
std::string with(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return one("{\"dtype\":" + dtype + ",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}");
}
std::string sized(std::uint64_t size) {
  std::string file = good_safetensors();
  for (std::size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(size >> (8 * i) & 255);
  return file;
}
std::string repeated(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

void add_truncated(std::vector<Hostile>& files, const std::string& good) {
  for (std::size_t size = 0; size < good.size(); ++size)
    files.push_back({"cut at " + std::to_string(size), good.substr(0, size), ""});
}

std::vector<Hostile> hostile_safetensors() {
  const std::string entry = R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  std::vector<Hostile> files = {
      {"one byte too many", good_safetensors() + "x", "12 bytes of data"},
      {"no data", safetensors_file("{}", "x"), "the tensors end at 0"},
      {"json array", safetensors_file("[]", ""), "not a JSON object"},
      {"json null", safetensors_file("null", ""), "not a JSON object"},
      {"json string", safetensors_file("\"w\"", ""), "not a JSON object"},
      {"not json", safetensors_file("hello", ""), "not JSON"},
      {"empty json", safetensors_file("", ""), "not JSON"},
      {"two documents", safetensors_file("{}{}", ""), "not JSON"},
      {"a comment", safetensors_file("{}/**/", ""), "not JSON"},
      {"not utf-8", safetensors_file("{\"\xff\":1}", ""), "not JSON"},
      {"a lone surrogate", safetensors_file("{\"\\ud800\":1}", ""), "not JSON"},
      {"zero bytes", safetensors_file(std::string(64, '\0'), ""), "not JSON"},
      {"a byte order mark", safetensors_file("\xef\xbb\xbf{}", ""), "not JSON"},
      {"padded with zero bytes", safetensors_file(std::string("{}\0\0\0\0\0\0", 8), ""), "not JSON"},
      {"a zero byte in a name", safetensors_file(std::string("{\"\0\":1}", 7), ""), "not JSON"},
      {"deep", safetensors_file(repeated("[", 100000), ""), "not a JSON object"},
      {"deep objects", safetensors_file(repeated("{\"a\":", 100000), ""), "fields"},
      {"deep and closed", safetensors_file("{\"w\":" + repeated("[", 50000) + repeated("]", 50000) + "}", ""),
       "fields"},
      {"a name twice", safetensors_file("{\"w\":" + entry + ",\"w\":" + entry + "}", "abcdefgh"), "occurs twice"},
      {"a field twice", one(R"({"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]})"), "occurs twice"},
      {"metadata twice", safetensors_file(R"({"__metadata__":{},"__metadata__":{}})", ""), "occurs twice"},
      {"metadata key twice", safetensors_file(R"({"__metadata__":{"a":"b","a":"c"}})", ""), "occurs twice"},
      {"metadata false", safetensors_file(R"({"__metadata__":false})", ""), "__metadata__"},
      {"metadata null twice", safetensors_file(R"({"__metadata__":null,"__metadata__":null})", ""), "occurs twice"},
      {"metadata text", safetensors_file(R"({"__metadata__":"step"})", ""), "__metadata__"},
      {"metadata of a null", safetensors_file(R"({"__metadata__":{"step":null}})", ""), "is not a string"},
      {"metadata array", safetensors_file(R"({"__metadata__":[]})", ""), "__metadata__"},
      {"metadata number", safetensors_file(R"({"__metadata__":{"step":3}})", ""), "is not a string"},
      {"metadata object", safetensors_file(R"({"__metadata__":{"step":{}}})", ""), "is not a string"},
      {"entry null", one("null"), "fields"},
      {"entry number", one("1"), "fields"},
      {"entry array", one("[1,2,3]"), "fields"},
      {"entry empty", one("{}"), "fields"},
      {"no dtype", one(R"({"shape":[2],"data_offsets":[0,8]})"), "fields"},
      {"no shape", one(R"({"dtype":"F32","data_offsets":[0,8]})"), "fields"},
      {"no offsets", one(R"({"dtype":"F32","shape":[2]})"), "fields"},
      {"a fourth field", one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1})"), "fields"},
      {"another field", one(R"({"dtype":"F32","shape":[2],"offsets":[0,8]})"), "fields"},
  };
  for (const char* dtype : {"null", "1", "\"\"", "\"f32\"", "\"F33\"", "\"F32 \"", "\"FLOAT\"", "[]", "{}", "true"})
    files.push_back({std::string("dtype ") + dtype, with(dtype, "[2]", "[0,8]"), "dtype: expected one of"});
  for (const char* shape :
       {"null", "2", "\"2\"", "{}", "[-2]", "[2.0]", "[\"2\"]", "[[2]]", "[null]", "[1e3]", "[true]",
        "[1,1,1,1,1,1,1,1,2]", "[18446744073709551615]", "[18446744073709551616]", "[9223372036854775808]",
        "[4294967296,4294967296]", "[2147483648,2147483648,4]", "[1152921504606846976]", "[0,18446744073709551615]"})
    files.push_back({std::string("shape ") + shape, with("\"F32\"", shape, "[0,8]"), "shape: "});
  for (const char* shape : {"[]", "[1]", "[3]", "[0]", "[2,0]", "[2,2]", "[9007199254740991]"})
    files.push_back({std::string("shape of other bytes ") + shape, with("\"F32\"", shape, "[0,8]"), "bytes for f32"});
  for (const char* offsets :
       {"null", "8", "{}", "[]", "[0]", "[0,4,8]", "[\"0\",\"8\"]", "[0.0,8]", "[-8,0]", "[0,-8]", "[null,8]",
        "[0,18446744073709551616]", "[8,0]", "[0,9]", "[1,9]", "[8,16]", "[0,18446744073709551615]",
        "[18446744073709551608,18446744073709551615]", "[18446744073709551608,0]"})
    files.push_back({std::string("offsets ") + offsets, with("\"F32\"", "[2]", offsets), "data_offsets"});
  auto two = [&](const char* a, const char* b) {
    std::string json = R"({"a":{"dtype":"BOOL","shape":[4],"data_offsets":)" + std::string(a) +
                       R"(},"b":{"dtype":"BOOL","shape":[4],"data_offsets":)" + b + "}}";
    return safetensors_file(json, std::string(8, '\1'));
  };
  files.push_back({"overlap", two("[0,4]", "[2,6]"), "begins at 2"});
  files.push_back({"the same bytes", two("[0,4]", "[0,4]"), "begins at 0"});
  files.push_back({"overlap at the end", two("[4,8]", "[3,7]"), "begins at 3"});
  files.push_back({"a hole at the beginning", two("[4,8]", "[4,8]"), "begins at 4"});
  files.push_back({"a boolean of 2", with("\"BOOL\"", "[8]", "[0,8]"), "neither 0 nor 1"});
  for (std::uint64_t size : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 20, std::uint64_t{100'000'001},
                             std::uint64_t{1} << 32, std::uint64_t{1} << 63, ~std::uint64_t{0}, ~std::uint64_t{7}})
    files.push_back({"header of " + std::to_string(size), sized(size), ""});
  for (const std::string& nested :
       {repeated("[", 100000) + repeated("]", 100000), repeated("{\"a\":", 100000) + "1" + repeated("}", 100000)}) {
    files.push_back({"nested dtype", with(nested, "[2]", "[0,8]"), "dtype: expected one of"});
    files.push_back({"nested shape", with("\"F32\"", nested, "[0,8]"), "shape: "});
    files.push_back({"nested size", with("\"F32\"", "[" + nested + "]", "[0,8]"), "shape: "});
    files.push_back({"nested offsets", with("\"F32\"", "[2]", nested), "data_offsets"});
    files.push_back({"nested offset", with("\"F32\"", "[2]", "[0," + nested + "]"), "data_offsets"});
    files.push_back({"nested metadata", safetensors_file("{\"__metadata__\":{\"a\":" + nested + "}}", ""), "string"});
  }
  const std::string name(5'000'000, 'A');
  files.push_back({"long name", safetensors_file("{\"" + name + "\":" + entry + "}", ""), "AAA..."});
  files.push_back({"long name, cut", safetensors_file("{\"" + name, ""), "not JSON"});
  files.push_back({"long dtype", with("\"" + name + "\"", "[2]", "[0,8]"), "dtype: expected one of"});
  files.push_back({"long size", with("\"F32\"", "[" + std::string(1'000'000, '9') + "]", "[0,8]"), "number overflow"});
  files.push_back({"long metadata", safetensors_file("{\"__metadata__\":{\"" + name + "\":1}}", ""), "string"});
  files.push_back(
      {"a name that clears the screen", safetensors_file(R"({"\u001b[2J\u000a":1})", ""), "\"\\x1b[2J\\n\""});
  files.push_back({"half a byte", with("\"F4\"", "[3]", "[0,1]"), "12 bits for F4[3]"});
  files.push_back({"other bytes of another dtype", with("\"I16\"", "[2]", "[0,8]"), "4 bytes for I16[2]"});
  add_truncated(files, good_safetensors());
  return files;
}

std::vector<Hostile> hostile_idx() {
  std::vector<Hostile> files = {{"one byte too many", good_idx() + "x", "too long"},
                                {"text", "To be, or not to be", ""}};
  for (int type = 0; type < 256; type += 5)
    if (type != 8) files.push_back({"type " + std::to_string(type), idx_file({2, 3}, "abcdef", type), "element type"});
  for (int rank : {0, 9, 16, 127, 128, 255}) {
    std::string file = good_idx();
    file[3] = static_cast<char>(rank);
    files.push_back({"rank " + std::to_string(rank), file, "dimensions"});
  }
  for (std::size_t byte : {0u, 1u})
    for (char value : {'\1', '\x1f', '\x7f', '\xff'}) {
      std::string file = good_idx();
      file[byte] = value;
      files.push_back({"magic byte " + std::to_string(byte) + " is " + std::to_string(int{value}), file, ""});
    }
  using Sizes = std::vector<std::uint32_t>;
  for (const Sizes& sizes :
       {Sizes{0}, Sizes{0, 3}, Sizes{3, 0}, Sizes{7}, Sizes{1, 7}, Sizes{0xffffffff}, Sizes{0x80000000},
        Sizes{0x7fffffff, 2}, Sizes{0xffffffff, 0xffffffff}, Sizes{0x80000000, 0x80000000, 4}, Sizes{65536, 65536},
        Sizes{0xffffffff, 0xffffffff, 0xffffffff}, Sizes{1, 1, 1, 1, 1, 1, 1, 7}, Sizes(8, 0xffffffff), Sizes(8, 256),
        Sizes{0, 0xffffffff, 0xffffffff, 0xffffffff}, Sizes(8, 0x01000000)})
    files.push_back({"sizes for 6 elements " + std::to_string(files.size()), idx_file(sizes, "abcdef"), ""});
  for (std::size_t byte = 4; byte < 12; ++byte)
    for (unsigned bit = 0; bit < 8; bit += 3) {
      std::string file = good_idx();
      file[byte] = static_cast<char>(file[byte] ^ (1u << bit));
      files.push_back({"bit " + std::to_string(bit) + " of byte " + std::to_string(byte), file, ""});
    }
  add_truncated(files, good_idx());
  return files;
}

std::vector<Hostile> hostile_npy() {
  const std::string elements(24, '\1'), good = good_npy();
  auto header = [&](const std::string& text) { return npy_file(text, elements); };
  std::vector<Hostile> files = {
      {"one byte too many", good + "x", "too long: expected 24 bytes of elements for f32[2, 3], seen 25"},
      {"one byte too few", good.substr(0, good.size() - 1), "truncated: expected 24 bytes of elements"},
      {"text", "To be, or not to be", "no .npy file"},
      {"Fortran order", header(npy_header("<f4", "(2, 3)", "True")), "Fortran order, f32[2, 3]"},
      {"neither order", header(npy_header("<f4", "(2, 3)", "None")), "True or False"},
      {"order as text", header(npy_header("<f4", "(2, 3)", "'False'")), "True or False"},
      {"records", header("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2, 3), }"), "array of records"},
      {"a number as descr", header("{'descr': 4, 'fortran_order': False, 'shape': (2, 3), }"), "text in quotes"},
      {"scalar", npy_file(npy_header("<f4", "()"), "abcd"), "seen a scalar"},
      {"nothing", header(""), "'{'"},
      {"a list", header("[1, 2]"), "'{'"},
      {"empty", header("{}"), "each once"},
      {"a zero byte", header(std::string("{\0}", 3)), "text in quotes"},
      {"no end", header("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), "), "text in quotes"},
      {"no end of a text", header("{'descr: "), "ends with a quote"},
      {"no shape", header("{'descr': '<f4', 'fortran_order': False}"), "each once"},
      {"no descr", header("{'shape': (2, 3), 'fortran_order': False}"), "each once"},
      {"no order", header("{'shape': (2, 3), 'descr': '<f4'}"), "each once"},
      {"descr twice", header("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}"), "each once"},
      {"another key", header("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), 'x': 1}"), "each once"},
      {"more behind it", header(npy_header("<f4", "(2, 3)") + "}"), "nothing behind the dictionary"},
      {"deep", header(repeated("{'descr':", 1000)), "text in quotes"},
      {"long", header("{'" + std::string(60'000, 'A')), "ends with a quote"},
      {"clears the screen", header("{'\x1b[2J"), "ends with a quote"},
  };
  for (const char* descr : {">f4", ">f2", ">f8", ">i4", ">i8"})
    files.push_back({std::string("descr ") + descr, header(npy_header(descr, "(2, 3)")), "is big-endian"});
  for (const char* descr :
       {"",    "<",   "f4",  "=f4", "|f4", "<f1", "<f3", "<f16", "<c8",    "<c16", "|S4",  "<U1", "|O",  "|V4",
        "<i1", "|i1", "<i2", "<u2", "<u4", "<u8", "<b1", "<u1",  "<M8[s]", "<f4 ", " <f4", "<F4", "<f44"})
    files.push_back({std::string("descr ") + descr, header(npy_header(descr, "(2, 3)")), "another element type"});
  for (const char* shape : {"2", "[2, 3]", "'(2, 3)'", "None", "(2, 3", "(2 3)", "(-2, 3)", "(2.0, 3)", "(2, x)",
                            "(2,, 3)", "((2, 3))", "(+2, 3)", "(0x2, 3)", "(2L, 3)", "(2e0, 3)", "(,)",
                            "(9223372036854775808,)", "(18446744073709551617, 6)", "(1, 1, 1, 1, 1, 1, 1, 2, 3)"})
    files.push_back({std::string("shape ") + shape, header(npy_header("<f4", shape)), "header: expected"});
  for (const char* shape : {"(0,)", "(0, 3)", "(2, 0)", "(9223372036854775807, 0)"})
    files.push_back({std::string("shape ") + shape, header(npy_header("<f4", shape)), "is empty"});
  for (const char* shape :
       {"(9223372036854775807,)", "(9007199254740992,)", "(4294967296, 4294967296)", "(2147483648, 2147483648, 4)",
        "(4294967296, 4294967296, 6)", "(6148914691236517206, 3)", "(65536, 65536, 65536, 65536, 6)"})
    files.push_back({std::string("shape ") + shape, header(npy_header("<f4", shape)), "fewer than 2^53 elements"});
  for (const char* shape : {"(1,)", "(5,)", "(7,)", "(3, 3)", "(9007199254740991,)", "(4503599627370496,)"})
    files.push_back(
        {std::string("shape of other bytes ") + shape, header(npy_header("<f4", shape)), "bytes of elements"});
  for (int version : {0, 4, 127, 255}) {
    std::string file = good;
    file[6] = static_cast<char>(version);
    files.push_back({"version " + std::to_string(version), file, "version 1 to 3"});
  }
  for (std::uint64_t size : {0u, 1u, 17u, 119u, 200u, 65535u}) {
    std::string file = good;
    file.replace(8, 2, little(size, 2));
    files.push_back({"header of " + std::to_string(size), file, "expected"});
    file = npy_file(npy_header("<f4", "(2, 3)"), elements, 2);
    file.replace(8, 4, little(size == 17 ? 0xffffffff : size, 4));
    files.push_back({"header of version 2 of " + std::to_string(size), file, "expected"});
  }
  const std::string long_header = npy_header("<f4", "(2, 3)") + std::string(70'000, ' ');
  files.push_back({"a header of 70,000 bytes", npy_file(long_header, elements, 2), "at most 65536 bytes"});
  add_truncated(files, good.substr(0, good.size() - 1));
  return files;
}

std::vector<Hostile> hostile_npz() {
  const std::string x = good_npy(), y = good_labels_npy(), good = good_npz();
  auto one = [](const ZipPart& part, bool is_wide = false) { return zip_file({part}, is_wide); };
  constexpr std::uint64_t kHuge = ~std::uint64_t{0} - 1;
  std::vector<Hostile> files = {
      {"text", "To be, or not to be", "no zip archive"},
      {"an .npy file", x, "no zip archive"},
      {"no members", zip_file({}), "is empty"},
      {"one byte too many", good + "x", "no zip archive"},
      {"one byte in front", "x" + good, ""},
      {"encrypted", one({.name = "x.npy", .bytes = x, .flags = 1}), "encrypted"},
      {"another method", one({.name = "x.npy", .bytes = x, .method = 12}), "compression method 12"},
      {"stored, not deflated", one({.name = "x.npy", .bytes = x, .method = 8}), "is damaged"},
      {"deflated, not stored", one({.name = "x.npy", .bytes = x, .is_deflated = true, .method = 0}),
       "is stored: expected"},
      {"a wrong checksum", one({.name = "x.npy", .bytes = x, .is_deflated = true, .wrong_crc = 1}), "its checksum"},
      {"unpacked to less", one({.name = "x.npy", .bytes = x, .is_deflated = true, .unpacked = x.size() + 1}),
       "damaged"},
      {"unpacked to more", one({.name = "x.npy", .bytes = x, .is_deflated = true, .unpacked = x.size() - 1}),
       "seen more"},
      {"unpacked to nothing", one({.name = "x.npy", .bytes = x, .is_deflated = true, .unpacked = 0}), "seen more"},
      {"unpacked to very much", one({.name = "x.npy", .bytes = x, .is_deflated = true, .unpacked = 0xfffffffe}),
       "too much memory"},
      {"unpacked to everything", one({.name = "x.npy", .bytes = x, .is_deflated = true, .unpacked = kHuge}, true),
       "too much memory"},
      {"packed to less", one({.name = "x.npy", .bytes = x, .is_deflated = true, .packed = 20}), "truncated"},
      {"packed to nothing", one({.name = "x.npy", .bytes = x, .is_deflated = true, .packed = 0}), "truncated"},
      {"packed to more", one({.name = "x.npy", .bytes = x, .is_deflated = true, .packed = 500}), "does not say where"},
      {"packed to everything", one({.name = "x.npy", .bytes = x, .is_deflated = true, .packed = kHuge}, true),
       "does not say where"},
      {"stored beyond the end", one({.name = "x.npy", .bytes = x, .unpacked = 5000, .packed = 5000}),
       "does not say where"},
      {"stored up to 2^64", one({.name = "x.npy", .bytes = x, .unpacked = kHuge, .packed = kHuge}, true),
       "does not say where"},
      {"stored in part", one({.name = "x.npy", .bytes = x, .unpacked = 150, .packed = 150}), "truncated"},
      {"elsewhere", one({.name = "x.npy", .bytes = x, .local = 1}), "does not say where"},
      {"in the directory", one({.name = "x.npy", .bytes = x, .local = 220}), "does not say where"},
      {"far away", one({.name = "x.npy", .bytes = x, .local = 0xfffffffe}), "does not say where"},
      {"at 2^64", one({.name = "x.npy", .bytes = x, .local = kHuge}, true), "does not say where"},
      {"two of one name", zip_file({{.name = "x.npy", .bytes = x}, {.name = "x.npy", .bytes = x}}), "two members"},
      {"two in one place", zip_file({{.name = "x.npy", .bytes = x}, {.name = "y.npy", .bytes = y, .local = 0}}), ""},
      {"no array", zip_file({{.name = "x.npy", .bytes = x}, {.name = "x.txt", .bytes = y}}), "is no .npy file"},
      {"a folder", zip_file({{.name = "x/"}}), "is no .npy file"},
      {"another first dimension",
       zip_file(
           {{.name = "x.npy", .bytes = x}, {.name = "z.npy", .bytes = npy_file(npy_header("|u1", "(3,)"), "abc")}}),
       "expected 2 samples"},
      {"an array that is none", one({.name = "x.npy", .bytes = "hello"}), "array \"x.npy\": is no .npy file"},
      {"a compressed array that is none", one({.name = "x.npy", .bytes = "hello", .is_deflated = true}),
       "no .npy file"},
      {"no name", one({.name = "", .bytes = x}), "is no .npy file"},
      {"a name that clears the screen", one({.name = "\x1b[2J", .bytes = x}), "is no .npy file"},
      {"a long name", one({.name = std::string(60'000, 'A'), .bytes = x}), "AAA..."},
  };
  // A member within the data of another one, with all headers right, would be unpacked twice.
  const std::string inner = zip_file({{.name = "y.npy", .bytes = y}});
  files.push_back({"one within the other",
                   zip_file({{.name = "x.npy", .bytes = x + inner},
                             {.name = "y.npy", .bytes = y, .local = 30 + 5 + 20 + x.size()}}),
                   "lie over each other"});
  std::string fewer = good;
  fewer.replace(fewer.size() - 14, 4, little(1, 2) + little(1, 2));
  files.push_back({"two members, one said", fewer, "holds more than its members"});
  std::string other = good;
  other[2] = '\5';
  files.push_back({"a header that begins otherwise", other, "does not say where"});
  other = good;
  other[30] = 'z';
  files.push_back({"a header with another name", other, "does not say where"});
  // The numbers of the record at the end: this disk, the first, members here, all, bytes of the directory, its place.
  const std::size_t end = good.size() - 22;
  for (std::size_t place : {4u, 6u, 8u, 10u, 12u, 14u, 16u, 18u})
    for (std::uint64_t value : {1u, 3u, 0x7fffu, 0xffffu}) {
      std::string file = good;
      file.replace(end + place, 2, little(value, 2));
      files.push_back({"number " + std::to_string(value) + " at " + std::to_string(place), file, ""});
    }
  // The same in the records of large files.
  const std::string wide = zip_file({{.name = "x.npy", .bytes = x}}, true);
  const std::size_t wide_end = wide.size() - 22 - 20 - 56;
  for (std::size_t place : {0u, 16u, 20u, 24u, 32u, 40u, 48u, 56u, 64u})
    for (std::uint64_t value : {std::uint64_t{2}, std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
      std::string file = wide;
      file.replace(wide_end + place, 8, little(value, 8));
      files.push_back({"wide number " + std::to_string(value) + " at " + std::to_string(place), file, ""});
    }
  // The sizes of the name, the extra field and the comment of the first entry.
  const std::size_t directory = good.find("PK\1\2");
  for (std::size_t place : {0u, 28u, 30u, 32u})
    for (std::uint64_t value : {1u, 20u, 46u, 0xffffu}) {
      std::string file = good;
      file.replace(directory + place, 2, little(value, 2));
      files.push_back({"size " + std::to_string(value) + " in the entry at " + std::to_string(place), file, ""});
    }
  add_truncated(files, good);
  return files;
}

std::vector<Hostile> hostile_tokens() {
  const std::string good = good_tokens();
  auto header = [](std::uint64_t magic, std::uint64_t version, std::uint64_t count, const std::string& tokens) {
    std::string text = little(magic, 4) + little(version, 4) + little(count, 4);
    text.resize(1024);
    return text + tokens;
  };
  std::vector<Hostile> files = {
      {"one byte too many", good + "x", "its header says 5 tokens"},
      {"one token too many", good + std::string(2, '\1'), "its header says 5 tokens"},
      {"big-endian", header(0x88d53401, 1, 5, std::string(10, '\1')), "big-endian"},
      {"big-endian u32", header(__builtin_bswap32(20240801), 1, 5, std::string(20, '\1')), "big-endian"},
      {"no tokens", header(20240520, 1, 0, ""), "too short"},
      {"u16 as u32", header(20240801, 7, 5, std::string(10, '\1')), "its header says 5 tokens of 4 bytes"},
      {"two tokens", std::string(4, '\1'), "too short: expected at least 4 tokens"},
      {"three tokens", std::string(6, '\1'), "too short: expected at least 4 tokens"},
      {"half a token", std::string(9, '\1'), "whole tokens of 2 bytes (uint16), seen 9 bytes"},
  };
  files[2].bytes.replace(0, 4, little(__builtin_bswap32(20240520), 4));
  for (std::uint64_t version : {0u, 2u, 7u, 0x01000000u, 0xffffffffu})
    files.push_back(
        {"version " + std::to_string(version), header(20240520, version, 5, std::string(10, '\1')), "version 1"});
  for (std::uint64_t count : {1u, 4u, 6u, 0x05000000u, 0x7fffffffu, 0x80000005u, 0xffffffffu})
    files.push_back(
        {"count " + std::to_string(count), header(20240520, 1, count, std::string(10, '\1')), "its header says"});
  for (std::size_t size : {4u, 6u, 8u, 100u, 512u, 1022u, 1023u, 1024u, 1025u, 1026u, 1033u})
    files.push_back({"cut at " + std::to_string(size), good.substr(0, size), ""});
  for (std::size_t size = 0; size < 6; ++size)
    files.push_back({"bytes " + std::to_string(size), std::string(size, '\2'), ""});
  for (int i = 0; i < 80; ++i)
    files.push_back(
        {"odd " + std::to_string(i), std::string(static_cast<std::size_t>(11 + 2 * i), '\3'), "whole tokens"});
  return files;
}

// Each file is another one, and each is refused by name.
template <class Read>
void expect_all_refused(const std::vector<Hostile>& files, const Read& read) {
  TemporaryDirectory directory;
  std::filesystem::path path = directory / "hostile";
  std::vector<std::string> all;
  for (const Hostile& file : files) {
    write_file(path, file.bytes);
    all.push_back(file.bytes);
    try {
      read(path);
      ADD_FAILURE() << file.name << " was read";
    } catch (const Error& e) {
      EXPECT_EQ(e.op(), path.string()) << file.name;
      EXPECT_NE(e.problem().find(file.says), std::string::npos) << file.name << ": " << e.what();
      EXPECT_FALSE(e.remedy().empty()) << file.name;
      EXPECT_EQ(e.code(), ErrorCode::io) << file.name;
      EXPECT_LT(std::string(e.what()).size(), 1000u) << file.name;
    }
  }
  std::sort(all.begin(), all.end());
  EXPECT_EQ(std::adjacent_find(all.begin(), all.end()), all.end()) << "a file occurs twice";
  EXPECT_GE(files.size(), 100u);
}

TEST(HostileFiles, CheckpointsAreRefused) {
  TemporaryDirectory directory;
  write_file(directory / "good", good_safetensors());
  EXPECT_EQ(read_checkpoint(directory / "good").tensors.size(), 2u);
  expect_all_refused(hostile_safetensors(), [](const auto& path) { read_checkpoint(path); });
}

TEST(HostileFiles, RefusalTakesTheMemoryOfTheHeader) {
  if (testing::kSanitized) GTEST_SKIP() << "the sanitizer's own memory would be counted, too";
  constexpr int kMany = 20'000'000;
  TemporaryDirectory directory;
  const std::filesystem::path path = directory / "hostile";
  for (const std::string& json : {std::string(kMany, '['), "{\"__metadata__\":[" + repeated("0,", kMany / 2) + "0]}",
                                  "{\"w\":{\"shape\":[" + repeated("1,", kMany / 2) + "1]}}"}) {
    write_file(path, safetensors_file(json, ""));
    EXPECT_LT(testing::memory_of_refusal([&] { read_checkpoint(path); }), json.size() + 50'000'000)
        << json.substr(0, 20);
  }
}

// In quadratic time this would take many minutes.
TEST(HostileFiles, ManyTensorsAreReadAndWrittenInGoodTime) {
  constexpr int kMany = 300'000;
  std::string json;
  for (int i = 0; i < kMany; ++i) {
    json += (json.empty() ? "{" : ",") + ("\"layer." + std::to_string(i)) +
            R"(":{"dtype":"U8","shape":[1],"data_offsets":[)" + std::to_string(i) + "," + std::to_string(i + 1) + "]}";
  }
  TemporaryDirectory directory;
  write_file(directory / "many", safetensors_file(json + "}", std::string(kMany, '\7')));
  const Checkpoint checkpoint = read_checkpoint(directory / "many");
  EXPECT_EQ(checkpoint.tensors.size(), std::size_t{kMany});
  write_checkpoint(directory / "again", checkpoint);
  EXPECT_EQ(read_checkpoint(directory / "again").tensors.at("layer.299999").at(0), 7);
}

TEST(HostileFiles, IdxFilesAreRefused) {
  TemporaryDirectory directory;
  write_file(directory / "good", good_idx());
  EXPECT_EQ(read_idx(directory / "good").bytes.size(), 6u);
  expect_all_refused(hostile_idx(), [](const auto& path) { read_idx(path); });
  // The same as images, which are not read as a whole, and as labels.
  write_file(directory / "labels", idx_file({2}, "\1\2"));
  EXPECT_EQ(idx_source(directory / "good", directory / "labels")->size(), 2);
  expect_all_refused(hostile_idx(), [&](const auto& path) { idx_source(path, directory / "labels"); });
  expect_all_refused(hostile_idx(), [&](const auto& path) { idx_source(directory / "good", path); });
}

TEST(HostileFiles, NpyFilesAreRefused) {
  TemporaryDirectory directory;
  write_file(directory / "good", good_npy());
  EXPECT_EQ(npy_source({{"x", directory / "good"}})->size(), 2);
  expect_all_refused(hostile_npy(), [](const auto& path) { npy_source({{"x", path}}); });
}

TEST(HostileFiles, NpzFilesAreRefused) {
  TemporaryDirectory directory;
  write_file(directory / "good", good_npz());
  EXPECT_EQ(npz_source(directory / "good")->size(), 2);
  expect_all_refused(hostile_npz(), [](const auto& path) { npz_source(path); });
}

TEST(HostileFiles, TokenFilesAreRefused) {
  TemporaryDirectory directory;
  write_file(directory / "good", good_tokens());
  EXPECT_EQ(token_source(directory / "good", {.length = 3})->size(), 1);
  expect_all_refused(hostile_tokens(), [](const auto& path) { token_source(path, {.length = 3}); });
}

}  // namespace
}  // namespace graphsink::hostile_files_test
