-- count
SELECT COUNT(*) AS c FROM PUMS.PUMS;
-- count, no alias
SELECT COUNT(*) FROM PUMS;
-- distinct unit
SELECT COUNT(DISTINCT pid) AS people FROM PUMS.PUMS;
-- mean
SELECT AVG(age) AS mean_age FROM PUMS.PUMS;
-- mean, duplicate names
SELECT AVG(age), AVG(income), AVG(age) FROM PUMS.PUMS;
-- group, count
SELECT sex, COUNT(*) AS n FROM PUMS.PUMS GROUP BY sex;
-- group, order
SELECT married, AVG(income) AS income, COUNT(*) AS n FROM PUMS.PUMS GROUP BY married ORDER BY n DESC;
-- two keys
SELECT sex, married, COUNT(pid) AS n FROM PUMS.PUMS GROUP BY sex, married;
-- variance
SELECT VAR(age) AS v FROM PUMS.PUMS; -- duck: SELECT VARIANCE(age) AS v FROM PUMS
-- deviation
SELECT STD(age) AS s, STDDEV(income) AS si FROM PUMS.PUMS; -- duck: SELECT STDDEV(age) AS s, STDDEV(income) AS si FROM PUMS
-- arithmetic on outputs
SELECT 2 * AVG(income) + 3 AS scaled FROM PUMS.PUMS;
-- arithmetic on outputs, sqrt
SELECT SQRT(AVG(income)) AS root, SUM(income) / COUNT(income) AS ratio FROM PUMS.PUMS;
-- power on outputs
SELECT POWER(AVG(age), 2) AS squared FROM PUMS.PUMS;
-- functions on outputs
SELECT COS(AVG(age) / 100) AS c, LOG10(COUNT(*)) AS l FROM PUMS.PUMS;
-- cast on outputs
SELECT CAST(COUNT(*) AS INTEGER) AS n, CAST(AVG(age) AS VARCHAR) IS NULL AS missing FROM PUMS.PUMS;
-- having
SELECT educ, COUNT(*) AS n FROM PUMS.PUMS GROUP BY educ HAVING COUNT(*) > 10;
-- having, between
SELECT educ, COUNT(*) AS n FROM PUMS.PUMS GROUP BY educ HAVING COUNT(*) BETWEEN 10 AND 30 ORDER BY educ;
-- TOP
SELECT TOP 2 sex, COUNT(*) AS n FROM PUMS.PUMS GROUP BY sex ORDER BY n DESC; -- duck: SELECT sex, COUNT(*) AS n FROM PUMS GROUP BY sex ORDER BY n DESC LIMIT 2
-- limit, offset
SELECT educ, COUNT(*) AS n FROM PUMS.PUMS GROUP BY educ ORDER BY educ LIMIT 3 OFFSET 1;
-- subquery without alias
SELECT COUNT(*) AS n FROM (SELECT pid, age FROM PUMS.PUMS WHERE age > 40);
-- subquery without alias
SELECT sex, AVG(age) AS a FROM (SELECT sex, age FROM PUMS.PUMS WHERE married = 1) GROUP BY sex;
-- subquery without alias, nested
SELECT SUM(x) AS s FROM (SELECT age AS x FROM (SELECT pid, age FROM PUMS.PUMS));
-- subquery with alias
SELECT AVG(q.income) AS m FROM (SELECT pid, income FROM PUMS.PUMS WHERE sex = 1) AS q;
-- outer aggregate over grouped
SELECT MAX(n) AS largest FROM (SELECT educ, COUNT(*) AS n FROM PUMS.PUMS GROUP BY educ) AS g;
-- outer aggregate over grouped, subquery without alias
SELECT AVG(n) AS average, COUNT(*) AS groups FROM (SELECT educ, COUNT(*) AS n FROM PUMS.PUMS GROUP BY educ);
-- outer select over grouped
SELECT sex, n * 2 AS twice FROM (SELECT sex, COUNT(*) AS n FROM PUMS.PUMS GROUP BY sex) AS g WHERE n > 5;
-- functions on keys
SELECT UPPER(race) AS race, COUNT(*) AS n FROM PUMS.PUMS GROUP BY race;
-- functions on keys
SELECT SUBSTRING(race, 1, 1) AS letter, LENGTH(race) AS letters, COUNT(*) AS n FROM PUMS.PUMS GROUP BY race;
-- functions on keys, concat
SELECT CONCAT(race, '!') AS loud, AVG(age) AS a FROM PUMS.PUMS GROUP BY race;
-- case group
SELECT CASE WHEN age < 30 THEN 'young' WHEN age < 60 THEN 'middle' ELSE 'old' END AS band, COUNT(*) AS n FROM PUMS.PUMS GROUP BY 1;
-- case group, null
SELECT CASE WHEN age < 30 THEN 'young' END AS band, COUNT(*) AS n FROM PUMS.PUMS GROUP BY band;
-- not like
SELECT COUNT(*) AS n FROM PUMS.PUMS WHERE race NOT LIKE 'w%';
-- where in, between
SELECT COUNT(*) AS n FROM PUMS.PUMS WHERE educ IN (1, 2, 3) AND age BETWEEN 20 AND 60 AND NOT married = 1;
-- case in aggregate
SELECT SUM(CASE WHEN age > 50 THEN 1 ELSE 0 END) AS olds FROM PUMS.PUMS;
-- union all of released
SELECT sex, COUNT(*) AS n FROM PUMS.PUMS GROUP BY sex UNION ALL SELECT married, COUNT(*) FROM PUMS.PUMS GROUP BY married;
-- median; approx
SELECT MEDIAN(age) AS m FROM PUMS.PUMS;
-- min, max; approx
SELECT MIN(age) AS low, MAX(age) AS high FROM PUMS.PUMS;
-- log of a column
SELECT AVG(LN(income + 1)) AS l FROM PUMS.PUMS;
-- power of a column
SELECT SUM(POWER(age, 2)) AS s FROM PUMS.PUMS;
-- double-quoted names
SELECT COUNT("pid") AS "n people" FROM "PUMS"."PUMS";
-- select distinct
SELECT DISTINCT sex FROM PUMS.PUMS;
-- rows; refuse
SELECT age, income FROM PUMS.PUMS;
-- rows; refuse
SELECT * FROM PUMS.PUMS WHERE pid = 5;
-- by unit; refuse
SELECT pid, COUNT(*) AS n FROM PUMS.PUMS GROUP BY pid;
-- window over rows; refuse
SELECT RANK() OVER (ORDER BY income) AS r FROM PUMS.PUMS;
