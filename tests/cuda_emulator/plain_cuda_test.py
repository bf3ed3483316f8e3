#!/usr/bin/env python3
"""plain_cuda.py: what becomes of launches and dynamic shared memory, what stays as it is, and what is refused."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import plain_cuda  # noqa: E402

REPLACED = [
    ("k<<<1, 2>>>();", "EMU_KERNEL(k)(1, 2)();"),
    ("k<<<grid, block, bytes, stream>>>(a, b);", "EMU_KERNEL(k)(grid, block, bytes, stream)(a, b);"),
    ("  k <<< g, b >>> (x);", "  EMU_KERNEL(k )( g, b ) (x);"),
    ("f<<<g<1,2>(), h(1, 2)>>>(x);", "EMU_KERNEL(f)(g<1,2>(), h(1, 2))(x);"),
    ("k<<<size<pair<1>>>>>(x);", "EMU_KERNEL(k)(size<pair<1>>)(x);"),
    ("k<float, 4><<<g, b>>>(x);", "EMU_KERNEL(k<float, 4>)(g, b)(x);"),
    ("k<(a > b), v<3>><<<g, b>>>(x);", "EMU_KERNEL(k<(a > b), v<3>>)(g, b)(x);"),
    ("ns::in<T>::k<T><<<g, b>>>(x);", "EMU_KERNEL(ns::in<T>::k<T>)(g, b)(x);"),
    ("return ::k<<<g, b>>>(x);", "return EMU_KERNEL(::k)(g, b)(x);"),
    ("else k<<<g, b>>>(x);", "else EMU_KERNEL(k)(g, b)(x);"),
    ("if (n > 0) k<<<g, b>>>(x);", "if (n > 0) EMU_KERNEL(k)(g, b)(x);"),
    ("if (n > 0) (f)<<<g, b>>>(x);", "if (n > 0) EMU_KERNEL((f))(g, b)(x);"),
    ("(big ? k1 : k2)<<<g, b>>>(x);", "EMU_KERNEL((big ? k1 : k2))(g, b)(x);"),
    ("table[i + f(2)]<<<g, b>>>(x);", "EMU_KERNEL(table[i + f(2)])(g, b)(x);"),
    ("choose<T>(n)<<<g, b>>>(x);", "EMU_KERNEL(choose<T>(n))(g, b)(x);"),
    ("p->m.kernel<<<g, b>>>(x);", "EMU_KERNEL(p->m.kernel)(g, b)(x);"),
    ("T::template k<3><<<g, b>>>(x);", "EMU_KERNEL(T::template k<3>)(g, b)(x);"),
    ("a = 1; k<<<dim3{1, 2}, [] { return 8; }()>>>(x);",
     "a = 1; EMU_KERNEL(k)(dim3{1, 2}, [] { return 8; }())(x);"),
    ("k<<<g, b>>>([] { j<<<1, 1>>>(); });", "EMU_KERNEL(k)(g, b)([] { EMU_KERNEL(j)(1, 1)(); });"),
    ("k<<<g, n >> 1>>>(x);", "EMU_KERNEL(k)(g, n >> 1)(x);"),
    ("k /* of <<< */ <<<g,  // blocks >>>(\n  b>>>(x);",
     "EMU_KERNEL(k /* of <<< */ )(g,  // blocks >>>(\n  b)(x);"),
    ("k<<<\n    g,\n    b\n>>>(\n    x);", "EMU_KERNEL(k)(\n    g,\n    b\n)(\n    x);"),
    ("#define RUN(...) \\\n  k<<<g, b>>> \\\n  (__VA_ARGS__)\n",
     "#define RUN(...) \\\n  EMU_KERNEL(k)(g, b) \\\n  (__VA_ARGS__)\n"),
    ("k<<<1'000, '\"'>>>(\"<<<\");", "EMU_KERNEL(k)(1'000, '\"')(\"<<<\");"),
    ("extern __shared__ float s[];", "float* const s = static_cast<float*>(::emu::dynamic_shared());"),
    ("extern __shared__ __align__(16) unsigned char s[];",
     "unsigned char* const s = static_cast<unsigned char*>(::emu::dynamic_shared());"),
    ("__shared__ extern volatile T s[];",
     "volatile T* const s = static_cast<volatile T*>(::emu::dynamic_shared());"),
    ("template <class T> __global__ void k() { extern __shared__ T s[]; s[0] = 0; }",
     "template <class T> __global__ void k() { T* const s = static_cast<T*>(::emu::dynamic_shared()); s[0] = 0; }"),
    ("params.func = (void*)k;", "params.func = (void*)::emu::known(k);"),
    ("f((const void *) &ns::k<float, 4>, g);", "f((const void *) ::emu::known(&ns::k<float, 4>), g);"),
    ("void* all[] = {(void*)j, (void*)k};", "void* all[] = {(void*)::emu::known(j), (void*)::emu::known(k)};"),
    ("return (void*)k;", "return (void*)::emu::known(k);"),
    ("f(reinterpret_cast<const void*>(k<T>));", "f(reinterpret_cast<const void*>(::emu::known(k<T>)));"),
    ("extern __shared__\n  std::pair<int, T> s [];",
     "std::pair<int, T>* const s = static_cast<std::pair<int, T>*>(::emu::dynamic_shared());\n"),
]

UNTOUCHED = [
    "a << b;",
    "std::cout << a << b << c;",
    "std::vector<std::vector<std::vector<int>>> v;",
    "x = a >>> b;",  # no launch; the compiler says what is wrong
    'puts("k<<<1, 1>>>()");',
    "// k<<<1, 1>>>()\n// don't <<<",
    "/* k<<<1, 1>>>()\n <<< */",
    "// goes on \\\n k<<<",
    'auto s = R"(k<<<1, 1>>>()\n" <<<)";',
    'auto s = u8R"x()" <<< )x";',
    r'auto s = "\"<<<"; char c = ' "'\\''; // <<<",
    "#error don't\n",
    "friend S& operator<<<T>(S&, T);",
    "__shared__ float s[32];",
    "extern float s[];",
    "// extern __shared__ float s[];",
    "// (void*)k;",
    "void f(void*) const;",
    "int f(const void*), g(void* p);",
    "p = (void*)q->data;",
    "p = (void*)f(x);",
    "p = (void*)a[0];",
    "using F = void (*)(void*);",
]

REFUSED = [
    ("int a;\nk<<<1, 1;\n", 2, "<<< has no matching >>>"),
    ("k<<<1, (1>>>();", 1, "<<< has no matching >>>"),
    ("f(k<<<1, 1);", 1, "<<< has no matching >>>"),
    ("\n\nk<<<1, 1", 3, "<<< has no matching >>>"),
    ("k<<<1,\n 1>>>;", 2, ">>> must be followed by the kernel's arguments in parentheses"),
    ("\n; <<<1, 1>>>();", 2, "<<< has no kernel before it"),
    ("return <<<1, 1>>>();", 1, "<<< has no kernel before it"),
    ("{\n a)<<<1, 1>>>();", 2, "the ) in the name of this kernel has no opening bracket"),
    ("; >\n<<<1, 1>>>();", 1, "the > in the name of this kernel has no opening bracket"),
]


class PlainCuda(unittest.TestCase):
    def test_replaces(self):
        for text, expected in REPLACED:
            with self.subTest(text):
                self.assertEqual(plain_cuda.translate(text), expected)
                self.assertEqual(text.count("\n"), expected.count("\n"))

    def test_replaces_in_the_middle_of_a_file(self):
        around = "// it's\nvoid f() {\n%s\n}\n"
        for text, expected in REPLACED:
            with self.subTest(text):
                self.assertEqual(plain_cuda.translate(around % text), around % expected)

    def test_leaves_the_rest(self):
        for text in UNTOUCHED:
            with self.subTest(text):
                self.assertEqual(plain_cuda.translate(text), text)

    def test_refuses_with_the_line(self):
        for text, line, message in REFUSED:
            with self.subTest(text):
                with self.assertRaises(plain_cuda.SourceError) as caught:
                    plain_cuda.translate(text)
                self.assertEqual(str(caught.exception), message)
                self.assertEqual(text.count("\n", 0, caught.exception.position) + 1, line)

    def run_script(self, *arguments):
        script = pathlib.Path(plain_cuda.__file__)
        return subprocess.run([sys.executable, script, *arguments], stderr=subprocess.PIPE, text=True, check=False)

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            source, made = pathlib.Path(folder, "a.cu"), pathlib.Path(folder, "new", "a.cu.cpp")
            source.write_bytes(b"k<<<1, 2>>>();  // \xe9\r\n")
            self.assertEqual(self.run_script(source, made).returncode, 0)
            line = f'#line 1 "{source}"\n'.encode()
            self.assertEqual(made.read_bytes(), line + b"EMU_KERNEL(k)(1, 2)();  // \xe9\r\n")
            source.write_text("\nk<<<1;\n", encoding="utf-8")
            failed = self.run_script(source, made)
            self.assertEqual(failed.returncode, 1)
            self.assertEqual(failed.stderr, f"{source}:2: error: <<< has no matching >>>\n")
            missing = self.run_script(source.with_name("b.cu"), made)
            self.assertEqual((missing.returncode, "No such file" in missing.stderr), (1, True))
        self.assertEqual(self.run_script("one").returncode, 2)


if __name__ == "__main__":
    unittest.main()
