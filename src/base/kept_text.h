// Texts that places in the user's source (Where) refer to.
#pragma once

#include <string>

namespace graphsink {

// The one string of these characters, which is never freed: so a Where stays trivial. With a destructor, default
// arguments of this type crash nvcc 13.0 in lines such as sgd(loss, {w}, {.lr = 0.1}). Any thread may call it.
const std::string* kept_text(std::string text);

}  // namespace graphsink
