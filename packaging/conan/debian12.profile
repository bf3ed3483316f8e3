# Takes every dependency from the packages that samples/setup.sh installs on Debian 12, and none from a remote of Conan:
#   conan create packaging/conan --profile:all packaging/conan/debian12.profile
include(default)
[settings]
compiler.cppstd=20
[platform_requires]
openblas/0.3.21
spdlog/1.10.0
zlib/1.2.13
nlohmann_json/3.11.2
libpng/1.6.39
libjpeg-turbo/2.1.5
libarchive/3.6.2
zeromq/4.3.4
cppzmq/4.9.0
[platform_tool_requires]
cmake/3.25.1
