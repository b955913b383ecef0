# From here on the payload counts as begun.
mark began
