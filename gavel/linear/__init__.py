"""Linear programs by HiGHS without anything around it, and the lowest point of a convex function by cutting planes."""
