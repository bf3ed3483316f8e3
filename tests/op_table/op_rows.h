// What the rows of the op table are made of.
#pragma once

#include "op_table.h"

namespace graphsink::testing {

inline const std::vector<DType> kSingleAndDouble{f32, f64};
inline const std::vector<DType> kFloats{f32, f64, f16, bf16};
inline const std::vector<DType> kNumbers{f32, f64, f16, bf16, i32, i64};
inline const std::vector<DType> kComparable{f32, f64, f16, bf16, i32, i64, u8};
inline const std::vector<DType> kAll{f32, f64, f16, bf16, i32, i64, u8, boolean};

// Small, empty, one element, primes around a block of 256 threads and its 4 elements for each, beyond a warp both ways.
inline const std::vector<Case> kUnary{{{2, 3}}, {{0}}, {{0, 3}}, {Shape{}}, {{1}}, {{257}}, {{1031}}, {{37, 41}}};
inline const std::vector<Case> kBinary{
    {{2, 3}, {2, 3}},        {{2, 3}, {3}},     {{3}, {2, 3}},      {{4, 1, 3}, {5, 1}},  {{2, 1, 3, 1}, {1, 4, 1, 2}},
    {{0, 3}, {3}},           {{0}, {1}},        {Shape{}, Shape{}}, {{1}, {1, 1}},        {{257}, {257}},
    {{1031}, {1031}},        {Shape{}, {1031}}, {{1031}, {1}},      {{257, 3}, {257, 1}}, {{37, 41}, {41}},
    {{33, 1, 5}, {33, 7, 1}}};

inline const std::vector<Case> kChoices{{{2, 3}, {2, 3}, {2, 3}},       {{3}, {2, 3}, {1}}, {Shape{}, {257}, {257}},
                                        {{4, 1, 3}, {5, 1}, {4, 1, 1}}, {{0}, {1}, {1}},    {{1031}, Shape{}, {1031}},
                                        {{37, 41}, {37, 1}, {41}}};
inline const std::vector<Case> kBroadcasts{
    {{3}, {2, 3}},    {{3, 1}, {3, 4}},        {Shape{}, {1031}},          {{1}, {257}},      {{0}, {2, 0}}, {{1}, {0}},
    {{2, 3}, {2, 3}}, {{5, 1, 7}, {5, 37, 7}}, {{1, 3, 1}, {2, 2, 3, 67}}, {Shape{}, Shape{}}};
inline const std::vector<Case> kSums{
    {{2, 3}, {3}},    {{3, 4}, {3, 1}},        {{1031}, Shape{}},          {{257}, {1}},      {{2, 0}, {0}}, {{0}, {1}},
    {{2, 3}, {2, 3}}, {{5, 37, 7}, {5, 1, 7}}, {{2, 2, 3, 67}, {1, 3, 1}}, {Shape{}, Shape{}}};
inline const std::vector<Case> kReshapes{
    {{2, 3}, {6}}, {{0}, {3, 0}}, {{1}, Shape{}}, {{1031}, {1, 1031}}, {{37, 41}, {41, 37}}};
inline const std::vector<Case> kMatrices{{{2, 3}},   {{0, 3}},     {{1, 1}},       {{1, 257}},
                                         {{37, 41}}, {{3, 5, 33}}, {{2, 2, 70, 3}}};
inline const std::vector<Case> kLookups{{{5, 3}, indices({4}, 5)},      {{5, 3}, indices({2, 3}, 5)},
                                        {{5, 3}, indices({0}, 5)},      {{1, 1}, indices({}, 1)},
                                        {{5, 0}, indices({4}, 5)},      {{7, 257}, indices({31}, 7)},
                                        {{11, 2}, indices({1031}, 11)}, {{257, 5}, indices({17}, 257)}};
inline const std::vector<Case> kClasses{{{2, 3}, indices({2}, 3)},     {{1, 1}, indices({1}, 1)},
                                        {{257, 5}, indices({257}, 5)}, {{3, 1031}, indices({3}, 1031)},
                                        {{33, 33}, indices({33}, 33)}, {{700, 100}, indices({700}, 100)}};

OpRow unary(std::string name, std::vector<DType> dtypes, Value (*op)(Arg, Placement), double (*f)(double));
OpRow arithmetic(std::string name, std::vector<DType> dtypes, Value (*op)(Arg, Arg, Placement),
                 double (*f)(double, double));
OpRow comparison(std::string name, std::vector<DType> dtypes, Value (*op)(Arg, Arg, Placement),
                 double (*f)(double, double));
OpRow positive(OpRow row);
OpRow coarse(OpRow row);
// Of ops that have a gradient in another row, or of those that have none.
OpRow without_grad(OpRow row);
OpRow without_grad(OpRow row, std::string because);
inline constexpr const char* kNoFloats = "No gradient passes through booleans and integers.";
inline constexpr const char* kConstant = "These are constant almost everywhere, so their gradients are 0.";
inline constexpr const char* kTypeOnly =
    "Random numbers, f32 or f64, of the type of `like`, whose data is not read, or of the given type.";

void add_data_rows(std::vector<OpRow>& rows);
void add_fold_rows(std::vector<OpRow>& rows);
void add_order_rows(std::vector<OpRow>& rows);
void add_text_rows(std::vector<OpRow>& rows);

}  // namespace graphsink::testing
