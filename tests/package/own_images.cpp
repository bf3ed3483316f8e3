// A program that reads a folder of images, which it writes: one pixel of class "dot".
#include <graphsink/images.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>

namespace gs = graphsink;

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::filesystem::path folder = argv[1];
  std::filesystem::create_directories(folder / "dot");
  constexpr char kPng[] =
      "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1\x08\0\0\0\0\x3a\x7e\x9b\x55\0\0\0\nIDAT\x78\x9c\x63\x68\2\0\0\x84"
      "\0\x83"
      "\xd0\x86\xce\x23\0\0\0\0IEND\xae\x42\x60\x82";
  std::ofstream(folder / "dot" / "0.png", std::ios::binary).write(kPng, sizeof kPng - 1);
  const auto images = gs::image_folder_source(folder, {.is_scaled = false});
  std::array<std::byte, 1> pixel{};
  std::array<std::byte, 4> label{};
  const std::array<std::span<std::byte>, 2> to = {pixel, label};
  images->read(0, to);
  std::cout << "images: " << images->size() << " of class " << images->classes()[0] << ", pixel "
            << std::to_integer<int>(pixel[0]) << "\n";
}
